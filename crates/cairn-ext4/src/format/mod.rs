//! On-disk structures: `Raw*` little-endian images and their validated twins. No I/O here.
