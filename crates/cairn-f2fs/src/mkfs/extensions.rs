//! Names of files whose data is cold (media, archives, programs: written once) or hot (databases,
//! disk images), as mkfs.f2fs stores them: a filesystem looks here for what the user does not say.
//! `mp` stands for `mp3`, `mp4`, ….

pub(super) const COLD: [&str; 36] = [
    "mp", "wm", "og", "jp", "avi", "m4v", "m4p", "mkv", "mov", "webm", "wav", "m4a", "3gp", "opus",
    "flac", "gif", "png", "svg", "webp", "jar", "deb", "iso", "gz", "xz", "zst", "pdf", "pyc",
    "ttc", "ttf", "exe", "apk", "cnt", "exo", "odex", "vdex", "so",
];
pub(super) const HOT: [&str; 4] = ["db", "vmdk", "vdi", "qcow2"];
