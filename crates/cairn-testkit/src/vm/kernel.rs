//! Debian's kernel, unpacked by `scripts/install-deps` into `target/vm`: the image, and the modules
//! a machine loads.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::archive::Archive;
use crate::judge::command;

/// Modules loaded at boot, with their dependencies.
const MODULES: [&str; 5] = ["crc32_generic", "crc32c_generic", "quota_v2", "f2fs", "ext4"];
/// Modules loaded when the disks are there.
const DISKS: [&str; 2] = ["virtio_pci", "virtio_blk"];
/// Modules that a script loads with its own parameters (`insmod /modules/NAME.ko`).
const ON_REQUEST: [&str; 1] = ["null_blk"];

pub(super) struct Kernel {
    pub image: PathBuf,
    /// Module name → file.
    modules: BTreeMap<String, PathBuf>,
}

impl Kernel {
    pub(super) fn find() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/vm/root");
        let boot = std::fs::read_dir(root.join("boot"));
        let images = boot.into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
        let mut images: Vec<PathBuf> =
            images.filter(|path| stem(path).starts_with("vmlinuz-")).collect();
        images.sort();
        let Some(image) = images.pop() else {
            panic!(
                "no kernel for the virtual machine in {}: run scripts/install-deps",
                root.display()
            );
        };
        let mut modules = BTreeMap::new();
        for directory in ["lib/modules", "usr/lib/modules"] {
            collect(&root.join(directory), &mut modules);
        }
        Self { image, modules }
    }

    /// Adds modules, and the orders to load them in: `modules/order` and `modules/disks`.
    pub(super) fn add_modules(&self, archive: &mut Archive) {
        let mut order = Vec::new();
        for (list, names) in [("modules/order", &MODULES[..]), ("modules/disks", &DISKS)] {
            let known = order.len();
            for name in names {
                self.add(name, archive, &mut order);
            }
            let added = order.iter().skip(known);
            let text: String = added.map(|name| format!("{name}.ko\n")).collect();
            archive.file(list, 0o644, text.into_bytes());
        }
        for name in ON_REQUEST {
            self.add(name, archive, &mut order);
        }
    }

    /// Dependencies first. A module that is not there is built into the kernel.
    fn add(&self, name: &str, archive: &mut Archive, order: &mut Vec<String>) {
        let Some(path) =
            self.modules.get(name).filter(|_| !order.iter().any(|known| known == name))
        else {
            return;
        };
        let bytes = load(path);
        for dependency in dependencies(&bytes) {
            self.add(&dependency, archive, order);
        }
        archive.file(&format!("modules/{name}.ko"), 0o644, bytes);
        order.push(name.to_owned());
    }
}

fn stem(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// All `*.ko` and `*.ko.xz` below a directory, by the name they have when loaded.
fn collect(directory: &Path, modules: &mut BTreeMap<String, PathBuf>) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        if path.is_dir() && !path.is_symlink() {
            collect(&path, modules);
        } else if let Some((name, "" | ".xz")) = stem(&path).split_once(".ko") {
            modules.insert(name.replace('-', "_"), path);
        }
    }
}

fn load(path: &Path) -> Vec<u8> {
    if stem(path).ends_with(".xz") {
        let output = command("xz")
            .arg("-dc")
            .arg(path)
            .stderr(Stdio::inherit())
            .output()
            .expect("xz starts");
        assert!(output.status.success(), "xz -dc {}", path.display());
        return output.stdout;
    }
    std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The names in the module's `depends=` string.
fn dependencies(module: &[u8]) -> Vec<String> {
    let key = b"\0depends=";
    let Some(at) = module.windows(key.len()).position(|window| window == key) else {
        return Vec::new();
    };
    let value = module.get(at + key.len()..).unwrap_or_default();
    let value: Vec<u8> = value.iter().copied().take_while(|byte| *byte != 0).collect();
    let names = String::from_utf8_lossy(&value).replace('-', "_");
    names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}
