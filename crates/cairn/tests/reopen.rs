//! Volumes that were opened for reading and are turned writable: recovered first, as in Linux,
//! while programs read them.

use std::path::Path;
use std::sync::Arc;

use cairn::{FileSystem, Format, ImageSpec, MkfsOptions, OpenOptions};
use cairn_testkit::judge::{self, assert_clean, assert_f2fs_clean};
use cairn_vfs::{Caller, IoFlags, NewInode, OpenMode};

const SIZE: u64 = 64 << 20;

fn make(image: &Path, format: Format) {
    let options = MkfsOptions { size: Some(SIZE), ..MkfsOptions::new(format) };
    cairn::mkfs(&ImageSpec::whole(image), &options).unwrap();
}

fn open(image: &Path, options: &OpenOptions) -> Arc<dyn FileSystem> {
    cairn::open(&ImageSpec::whole(image), options).unwrap().filesystem().clone()
}

fn reading(image: &Path) -> Arc<dyn FileSystem> {
    open(image, &OpenOptions::read_only())
}

fn create(fs: &dyn FileSystem, name: &str) -> cairn_vfs::Result<cairn_base::Ino> {
    fs.create(fs.root(), name.as_bytes(), NewInode::Regular, 0o644, &Caller::ROOT)
        .map(|made| made.ino)
}

fn contents(fs: &dyn FileSystem, ino: cairn_base::Ino) -> Vec<u8> {
    let mut bytes = vec![0; 100_000];
    let len = fs.read(ino, 0, &mut bytes, IoFlags::empty()).unwrap();
    bytes.truncate(len);
    bytes
}

/// A power cut: a file that was synced, and one that was removed while it was open.
fn cut(image: &Path) {
    let fs = open(image, &OpenOptions::default());
    let removed = create(&*fs, "removed").unwrap();
    fs.write(removed, 0, &[7; 3 << 20], IoFlags::empty()).unwrap();
    fs.sync().unwrap();
    fs.unlink(fs.root(), b"removed").unwrap();
    fs.sync().unwrap();
    let synced = create(&*fs, "synced").unwrap();
    fs.write(synced, 0, &[1; 70_000], IoFlags::empty()).unwrap();
    fs.fsync(synced, 0, false).unwrap();
    fs.shutdown(false).unwrap();
}

fn judge(image: &Path, format: Format) {
    match format {
        Format::Ext4 => assert_clean(image),
        _ => assert_f2fs_clean(image),
    }
}

#[test]
fn a_volume_opened_for_reading_is_recovered_when_it_is_turned_writable() {
    for format in Format::ALL {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        make(&image, format);
        let empty = reading(&image).statfs().unwrap().free_blocks;
        cut(&image);
        let bytes = std::fs::read(&image).unwrap();

        let fs = reading(&image);
        let found = fs.lookup(fs.root(), b"synced").unwrap().ino;
        assert_eq!(contents(&*fs, found), vec![1; 70_000], "{format}");
        let handle = fs.open(found, OpenMode { write: false, direct: false }).unwrap();
        assert!(create(&*fs, "early").is_err(), "{format}");
        assert!(bytes == std::fs::read(&image).unwrap(), "{format}: a read-only volume wrote");

        fs.check_remount("rw,noatime").unwrap();
        fs.remount("rw,noatime").unwrap();
        assert_eq!(fs.report().text("state.mode"), Some("rw"), "{format}");
        // What was removed is deleted, but for the little that the file that is there takes.
        let free = fs.statfs().unwrap().free_blocks;
        assert!(empty - free < 200, "{format}: {empty} blocks were free, now {free}");
        assert_eq!(contents(&*fs, found), vec![1; 70_000], "{format}");
        fs.write(found, 0, b"later", IoFlags::empty()).unwrap();
        create(&*fs, "made").unwrap();

        // The file still has a reference: without a name it stays until it is forgotten.
        fs.unlink(fs.root(), b"synced").unwrap();
        fs.release(found, handle);
        assert_eq!(contents(&*fs, found)[..5], *b"later", "{format}");
        fs.forget(found, 1);
        assert!(fs.getattr(found).is_err(), "{format}: without a reference it is deleted");

        fs.remount("ro").unwrap();
        fs.remount("rw").unwrap();
        fs.unmount().unwrap();
        drop(fs);
        judge(&image, format);
        let fs = reading(&image);
        fs.lookup(fs.root(), b"made").unwrap();
    }
}

#[test]
fn a_reader_beside_other_readers_keeps_reading() {
    for format in Format::ALL {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        make(&image, format);
        cut(&image);
        let (fs, other) = (reading(&image), reading(&image));
        let found = fs.lookup(fs.root(), b"synced").unwrap().ino;
        let refused = fs.remount("rw").unwrap_err().to_string();
        assert!(refused.contains("in use") && !refused.contains("mount again"), "{refused}");
        assert_eq!(contents(&*fs, found), vec![1; 70_000], "{format}");
        assert!(create(&*fs, "early").is_err() && fs.remount("rw,nonsense").is_err(), "{format}");
        fs.remount("noatime").unwrap();

        other.unmount().unwrap();
        drop(other);
        fs.remount("rw").unwrap();
        create(&*fs, "late").unwrap();
        fs.unmount().unwrap();
        drop(fs);
        judge(&image, format);
    }
}

#[test]
fn what_cannot_be_written_stays_readable() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    judge::mke2fs(&image, SIZE, &["-t", "ext4", "-O", "bigalloc"]);
    let fs = reading(&image);
    let refused = fs.remount("rw").unwrap_err().to_string();
    assert!(refused.contains("bigalloc"), "{refused}");
    fs.getattr(fs.root()).unwrap();
    fs.unmount().unwrap();
    drop(fs);

    make_again(&image);
    let noload = OpenOptions { mount_options: "noload".into(), ..OpenOptions::read_only() };
    let fs = open(&image, &noload);
    let refused = fs.check_remount("rw").unwrap_err().to_string();
    assert!(refused.contains("noload"), "{refused}");
    assert_eq!(fs.remount("rw").unwrap_err().to_string(), refused);
    fs.getattr(fs.root()).unwrap();
}

fn make_again(image: &Path) {
    std::fs::remove_file(image).unwrap();
    make(image, Format::Ext4);
}

/// The name of the image leads to another volume, or nowhere: the volume that was opened is turned
/// writable.
#[test]
fn the_image_is_opened_again_whatever_its_name_leads_to() {
    for format in Format::ALL {
        for other in [None, Some(Format::Ext4)] {
            let dir = tempfile::tempdir().unwrap();
            let (image, moved) = (dir.path().join("image"), dir.path().join("moved"));
            make(&image, format);
            cut(&image);
            let fs = reading(&image);
            std::fs::rename(&image, &moved).unwrap();
            if let Some(other) = other {
                make(&image, other);
            }
            let before = other.map(|_| std::fs::read(&image).unwrap());
            fs.remount("rw").unwrap();
            create(&*fs, "made").unwrap();
            fs.unmount().unwrap();
            drop(fs);
            assert!(
                before == other.map(|_| std::fs::read(&image).unwrap()),
                "{format}: another volume was written"
            );
            judge(&moved, format);
            let fs = reading(&moved);
            fs.lookup(fs.root(), b"made").unwrap();
        }
    }
}
