//! Mounts the in-memory oracle: `mount_model MOUNTPOINT [OPTION…]`. Ends when it is unmounted. For
//! trying out the front alone.

use std::path::Path;
use std::sync::Arc;

use cairn_fuse::MountOptions;
use cairn_testkit::model::Model;
use cairn_vfs::FileSystem;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mountpoint = arguments.next().expect("usage: mount_model MOUNTPOINT [OPTION…]");
    let mut options = MountOptions::new("model");
    for option in arguments {
        assert_eq!(options.set(&option), Ok(true), "unknown option {option}");
    }
    let model = Arc::new(Model::new());
    let session = cairn_fuse::mount(model.clone(), Path::new(&mountpoint), &options)
        .unwrap_or_else(|error| {
            eprintln!("mount_model: {error}");
            std::process::exit(1);
        });
    let served = session.run();
    model.unmount().expect("unmounts");
    if let Err(error) = served {
        eprintln!("mount_model: {error}");
        std::process::exit(1);
    }
}
