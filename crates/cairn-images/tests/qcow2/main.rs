//! qcow2 images, judged by `qemu-img` and `qemu-io`.

mod backing;
mod blocks;
mod crash;
mod faults;
mod hostile;
mod kept;
mod model;
mod options;
mod qemu;
mod space;
mod together;
