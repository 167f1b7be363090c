//! What `cairn --version` prints: the version, and what this program can do.

use std::env::consts::ARCH;
use std::sync::LazyLock;

static LONG: LazyLock<String> = LazyLock::new(|| {
    let libc = match (cfg!(target_env = "musl"), cfg!(target_env = "gnu")) {
        (true, _) => "musl",
        (_, true) => "glibc",
        _ => "its system's library",
    };
    let stores = match cfg!(feature = "remote") {
        true => "directories, S3, Google, Azure",
        false => "directories",
    };
    let linked = if cfg!(target_feature = "crt-static") { "static" } else { "dynamic" };
    format!(
        "{}\nfilesystems: ext2, ext3, ext4, f2fs\n\
         images: raw, partitions (GPT, MBR), qcow2, zstd, LUKS, NBD (with TLS), object stores \
         ({stores})\n\
         mounts: FUSE through /dev/fuse and through io_uring\n\
         built for: {ARCH} Linux, {libc}, {linked}",
        env!("CARGO_PKG_VERSION")
    )
});

/// The text behind the program's name.
#[must_use]
pub fn long() -> &'static str {
    LONG.as_str()
}
