//! F2FS volumes on several devices. The image has the names of the other devices, but these are not
//! trusted. A file beside the image is recognised by its contents; the user must name any other
//! device.

use std::fs::File;
use std::path::Path;

use cairn_testkit::judge::{self, assert_f2fs_clean};
use cairn_testkit::place::Place;
use rustix::fs::inotify;

use crate::support::{cairn, fails, works};

const MIB: u64 = 1 << 20;

/// A volume on `first.img` and, in another directory or the same, `second.img`.
struct Volume {
    directory: Place,
    image: String,
    second: String,
}

impl Volume {
    fn new(second: &str) -> Self {
        let directory = Place::new();
        std::fs::create_dir(directory.path().join("away")).unwrap();
        let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        let (image, second) = (path("first.img"), path(second));
        File::create(&second).unwrap().set_len(128 * MIB).unwrap();
        works(&["mkfs", "-F", "-t", "f2fs", "-c", &second, "--size", "64M", &image]);
        Self { directory, image, second }
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().unwrap().to_owned()
    }

    /// A tree with more data than the first device can hold, and then `small` files, so that a
    /// segment of inodes follows all data. `device` are the arguments that name the second device.
    fn fill(&self, small: usize, device: &[&str]) {
        let source = self.path("tree");
        std::fs::create_dir(&source).unwrap();
        for index in 0..60 {
            std::fs::write(format!("{source}/{index}"), vec![index; 1_000_000]).unwrap();
        }
        works(&[&["put"], device, &[&self.image, &source, "/"]].concat());
        std::fs::remove_dir_all(&source).unwrap();
        std::fs::create_dir(&source).unwrap();
        for index in 0..small {
            std::fs::write(format!("{source}/small-{index}"), b"small").unwrap();
        }
        works(&[&["put"], device, &[&self.image, &source, "/"]].concat());
        std::fs::remove_dir_all(&source).unwrap();
    }

    /// Replaces the second device by other bytes, which must not change.
    fn refuses(&self, victim: &[u8], arguments: &[&str], status: i32, why: &str) {
        std::fs::write(&self.second, victim).unwrap();
        let source = self.path("source");
        std::fs::write(&source, vec![b'!'; 3_000_000]).unwrap();
        for command in [
            &["put", &self.image, &source, "/"][..],
            &["ls", &self.image],
            &["cat", &self.image, "/0"],
        ] {
            let line = fails(&[&command[..1], arguments, &command[1..]].concat(), status);
            assert!(line.contains(why) && line.contains(&self.second), "{command:?}: {line}");
        }
        assert!(std::fs::read(&self.second).unwrap() == victim, "{why}: the victim was written");
    }
}

fn noise(len: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(13);
    (0..len).map(|_| random.u8(..)).collect()
}

#[test]
fn a_file_elsewhere_is_not_even_opened() {
    let volume = Volume::new("away/second.img");
    std::fs::write(&volume.second, noise(128 * MIB)).unwrap();
    let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
    inotify::add_watch(&watch, &*volume.second, inotify::WatchFlags::OPEN).unwrap();
    for command in ["ls", "put", "mkdir", "info"] {
        let rest: &[&str] = if command == "put" { &["/etc/hostname", "/"] } else { &["/"] };
        let line = match command {
            "info" => fails(&[command, &volume.image], 3),
            _ => fails(&[&[command, &volume.image], rest].concat(), 3),
        };
        assert!(line.contains("second.img") && line.contains("--device PATH"), "{line}");
    }
    let mut events = [std::mem::MaybeUninit::uninit(); 512];
    let seen = rustix::io::read(&watch, &mut events).err();
    assert_eq!(seen, Some(rustix::io::Errno::AGAIN), "the file was opened");
}

#[test]
fn a_stranger_beside_the_image_is_not_taken_for_its_device() {
    let empty = Volume::new("second.img");
    let full = Volume::new("second.img");
    full.fill(1500, &["--device", &full.second]);
    let theirs = std::fs::read(&full.second).unwrap();
    // The file has exactly the size of the device.
    let ext4 = empty.path("ext4.img");
    judge::mke2fs(Path::new(&ext4), 128 * MIB, &["-t", "ext4"]);
    let f2fs = empty.path("f2fs.img");
    judge::mkfs_f2fs(Path::new(&f2fs), 128 * MIB, &[]);
    let mut text = b"Dear diary".to_vec();
    text.resize(theirs.len(), 0);
    for victim in [
        noise(128 * MIB),
        text,
        theirs.clone(),
        std::fs::read(&ext4).unwrap(),
        std::fs::read(&f2fs).unwrap(),
    ] {
        empty.refuses(&victim, &[], 3, "do not show whether");
    }
    for victim in [noise(128 * MIB), std::fs::read(&ext4).unwrap(), vec![0; theirs.len()]] {
        full.refuses(&victim, &[], 3, "does not contain the volume's nodes");
        // Another device is refused even if it is named, because it and the volume would be
        // damaged.
        full.refuses(
            &victim,
            &["--device", &full.second],
            3,
            "does not contain the volume's nodes",
        );
    }
    full.refuses(&[&theirs[..], &noise(3 * MIB)].concat(), &[], 3, "bytes");
    full.refuses(&theirs[..theirs.len() / 2], &[], 3, "bytes");
    std::fs::write(&full.second, &theirs).unwrap();
    // A device with inodes is recognised without its name.
    assert_eq!(works(&["cat", &full.image, "/tree/7"]).len(), 1_000_000);
    works(&["mkdir", &full.image, "/more"]);
    assert_f2fs_clean(Path::new(&full.image));
}

#[test]
fn a_device_elsewhere_is_named() {
    let volume = Volume::new("away/second.img");
    let device = ["--device", &volume.second];
    // The device has no inode.
    volume.fill(0, &device);
    assert_eq!(
        works(&["cat", device[0], device[1], &volume.image, "/tree/7"]),
        "\u{7}".repeat(1_000_000)
    );
    assert!(works(&["info", device[0], device[1], &volume.image]).contains("f2fs"));
    let line = fails(&["ls", device[0], device[1], device[0], device[1], &volume.image], 2);
    assert!(line.contains("1 further devices, but 2 are named"), "{line}");
    // It is refused even beside the image, because plain data identifies no volume.
    let beside = volume.path("second.img");
    std::fs::rename(&volume.second, &beside).unwrap();
    let line = fails(&["ls", &volume.image, "/tree"], 3);
    assert!(line.contains("do not show whether") && line.contains("--device PATH"), "{line}");
    assert_eq!(works(&["ls", "--device", &beside, &volume.image, "/tree"]).lines().count(), 60);
    let single = volume.path("single.img");
    works(&["mkfs", "-F", "-t", "f2fs", "--size", "64M", &single]);
    let line = fails(&["ls", "--device", &volume.image, &single], 2);
    assert!(line.contains("no further devices: name none"), "{line}");
    let (status, _, said) = cairn(&["mount", "-o", "device=/no/such", &volume.image, "/mnt"]);
    assert!(status == 1 && said.contains("/no/such"), "{said}");
}
