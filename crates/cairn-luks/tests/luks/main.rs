//! LUKS, judged by cryptsetup (headers, and the bytes of version 2) and by QEMU's driver (the bytes
//! of version 1).

mod bytes;
mod cryptsetup;
mod hostile;
mod opening;
