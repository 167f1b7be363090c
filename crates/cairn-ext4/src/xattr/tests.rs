//! Attributes of one inode: placing, moving and sharing them, and reading and writing with the
//! kernel.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use cairn_block::memory::MemoryDevice;
use cairn_cache::budget::Budget;
use cairn_testkit::judge;
use parking_lot::Mutex;
use proptest::prelude::*;

use super::*;
use crate::dir::tests::image::TestImage;
use crate::format::inode::Inode;
use crate::space::Freed;
use crate::txn::Txn;

const INO: Ino = Ino(12);

/// Allocates blocks from a list and records freed ones.
#[derive(Default)]
struct Blocks {
    spare: Mutex<Vec<Pba>>,
    freed: Mutex<Vec<Pba>>,
}

impl BlockSource for Blocks {
    fn allocate_block(&self, _: &Handle, _: Pba) -> Result<Pba> {
        Ok(self.spare.lock().pop().ok_or(cairn_vfs::Error::NoSpace)?)
    }

    fn free(&self, _: &Handle, start: Pba, count: u64, kind: Freed) -> Result<()> {
        assert_eq!((count, kind), (1, Freed::Metadata));
        self.freed.lock().push(start);
        Ok(())
    }
}

/// Value inodes in memory: value and references.
#[derive(Default)]
struct Values(Mutex<BTreeMap<u64, (Vec<u8>, u32)>>);

impl ValueInodes for Values {
    fn read(&self, ino: Ino, _: u32) -> Result<Vec<u8>> {
        Ok(self.0.lock()[&ino.get()].0.clone())
    }

    fn create(&self, _: &Handle, value: &[u8], _: u32) -> Result<Ino> {
        let mut all = self.0.lock();
        let ino = all.last_key_value().map_or(100, |(ino, _)| ino + 1);
        all.insert(ino, (value.to_vec(), 1));
        Ok(Ino(ino))
    }

    fn retain(&self, _: &Handle, ino: Ino) -> Result<()> {
        self.0.lock().get_mut(&ino.get()).unwrap().1 += 1;
        Ok(())
    }

    fn release(&self, _: &Handle, ino: Ino) -> Result<()> {
        let mut all = self.0.lock();
        let entry = all.get_mut(&ino.get()).unwrap();
        entry.1 -= 1;
        if entry.1 == 0 {
            all.remove(&ino.get());
        }
        Ok(())
    }
}

/// An inode with the parts of the volume that its attributes need.
struct Bench {
    cache: Arc<BufferCache>,
    blocks: Blocks,
    values: Option<Values>,
    area: Vec<u8>,
    file_acl: Pba,
    sectors: i64,
}

impl Bench {
    fn new(area: usize, blocks: u64, ea_inode: bool) -> Self {
        let cache =
            BufferCache::new(Arc::new(MemoryDevice::new(1 << 20)), 1024, Budget::new(1 << 30));
        let blocks =
            Blocks { spare: Mutex::new((1..=blocks).map(Pba).collect()), ..Blocks::default() };
        let values = ea_inode.then(Values::default);
        Self { cache, blocks, values, area: vec![0; area], file_acl: Pba(0), sectors: 0 }
    }

    fn store(&self) -> XattrStore<'_> {
        XattrStore {
            block_size: 1024,
            cluster_size: 1024,
            checksum: MetadataChecksum::with_seed(3),
            value_seed: 3,
            buffers: &self.cache,
            source: &self.blocks,
            values: self.values.as_ref().map(|values| values as &dyn ValueInodes),
        }
    }

    fn view(&self) -> XattrView<'_> {
        XattrView { ino: INO, in_inode: &self.area, file_acl: self.file_acl }
    }

    fn get(&self, name: &str) -> Result<Vec<u8>> {
        self.store().get(self.view(), name.as_bytes())
    }

    fn change(
        &mut self,
        change: impl FnOnce(&XattrStore<'_>, &Handle, &mut XattrEdit<'_>) -> Result<i64>,
    ) -> Result<()> {
        let handle = Txn::Direct(self.cache.clone()).begin(8).unwrap();
        let (mut area, mut file_acl) = (self.area.clone(), self.file_acl);
        let mut edit =
            XattrEdit { ino: INO, in_inode: &mut area, file_acl: &mut file_acl, goal: Pba(1) };
        let delta = change(&self.store(), &handle, &mut edit)?;
        (self.area, self.file_acl) = (area, file_acl);
        self.sectors += delta;
        Ok(())
    }

    fn set(&mut self, name: &str, value: &[u8]) -> Result<()> {
        self.change(|store, handle, edit| {
            store.set(handle, edit, name.as_bytes(), value, XattrMode::Set)
        })
    }

    fn remove(&mut self, name: &str) -> Result<()> {
        self.change(|store, handle, edit| store.remove(handle, edit, name.as_bytes()))
    }

    fn remove_all(&mut self) {
        self.change(|store, handle, edit| store.remove_all(handle, edit)).unwrap();
    }

    fn names(&self) -> Vec<String> {
        let names = self.store().list(self.view()).unwrap();
        names.into_iter().map(|name| String::from_utf8(name).unwrap()).collect()
    }
}

fn is_no_space<T>(result: Result<T>) -> bool {
    // Damage of the volume or of the inode.
    matches!(
        result,
        Err(crate::Error::Vfs(cairn_vfs::Error::NoSpace | cairn_vfs::Error::NoAttributeSpace))
    )
}

#[test]
fn values_move_between_inode_and_block() {
    let mut bench = Bench::new(96, 2, false);
    bench.set("user.a", b"small").unwrap();
    assert_eq!(bench.file_acl, Pba(0));
    bench.set("user.b", &[2; 500]).unwrap();
    assert_eq!((bench.file_acl, bench.sectors), (Pba(2), 2));
    bench.set("user.a", &[1; 300]).unwrap();
    assert_eq!((bench.area.clone(), bench.names().len()), (vec![0; 96], 2));
    bench.set("user.b", b"tiny").unwrap();
    assert_eq!(bench.get("user.b").unwrap(), b"tiny");
    assert_eq!(bench.get("user.a").unwrap(), [1; 300]);
    assert!(is_no_space(bench.set("user.c", &[3; 700])));
    assert_eq!(bench.names(), ["user.b", "user.a"]);
    bench.remove("user.a").unwrap();
    assert_eq!((bench.file_acl, bench.sectors), (Pba(0), 0));
    assert_eq!(*bench.blocks.freed.lock(), [Pba(2)]);
    assert!(bench.get("user.a").is_err() && bench.remove("user.a").is_err());
}

#[test]
fn modes_and_limits_are_the_kernels() {
    let mut bench = Bench::new(96, 1, false);
    let mut set =
        |mode| bench.change(|store, handle, edit| store.set(handle, edit, b"user.a", b"1", mode));
    assert!(matches!(
        set(XattrMode::Replace),
        Err(crate::Error::Vfs(cairn_vfs::Error::NoAttribute))
    ));
    set(XattrMode::Create).unwrap();
    assert!(matches!(set(XattrMode::Create), Err(crate::Error::Vfs(cairn_vfs::Error::Exists))));
    set(XattrMode::Replace).unwrap();
    assert!(bench.set("user.big", &vec![0; VALUE_MAX + 1]).is_err());
    assert!(bench.set("system.data", b"x").is_err());
    bench.set("user.empty", b"").unwrap();
    assert_eq!(bench.get("user.empty").unwrap(), b"");
    assert!(bench.set("system.posix_acl_access", b"junk").is_err());
}

#[test]
fn a_shared_block_is_copied_and_left() {
    let mut bench = Bench::new(0, 3, true);
    bench.set("user.a", &[1; 100]).unwrap();
    bench.set("user.far", &[7; 3000]).unwrap();
    assert_eq!(bench.sectors, 2 + 6);
    let shared = bench.file_acl;
    let buffer = bench.cache.get(shared).unwrap();
    {
        // Another inode uses the block as well.
        let mut bytes = buffer.modify_direct();
        xattr::set_refcount(&mut bytes, 2);
        xattr::seal_block(&mut bytes, shared, MetadataChecksum::with_seed(3));
    }
    bench.set("user.b", b"mine").unwrap();
    assert_ne!(bench.file_acl, shared);
    assert_eq!((xattr::refcount(&buffer.image()), bench.sectors), (1, 8));
    assert_eq!(
        bench.values.as_ref().unwrap().0.lock()[&100].1,
        2,
        "both blocks refer to the value"
    );
    xattr::verify_block(&buffer.image(), shared, MetadataChecksum::with_seed(3), INO).unwrap();
    bench.remove("user.far").unwrap();
    assert_eq!((bench.values.as_ref().unwrap().0.lock()[&100].1, bench.sectors), (1, 2));
    bench.remove_all();
    assert_eq!((bench.file_acl, bench.sectors, bench.names().len()), (Pba(0), 0, 0));
    // The other inode still has all its attributes.
    bench.file_acl = shared;
    assert_eq!(bench.get("user.far").unwrap(), [7; 3000]);
    bench.sectors = 8;
    bench.remove_all();
    assert_eq!(bench.sectors, 0);
    assert!(bench.values.as_ref().unwrap().0.lock().is_empty());
}

#[test]
fn large_values_get_inodes_and_give_them_back() {
    let mut bench = Bench::new(96, 1, true);
    bench.set("user.a", &[9; 60_000]).unwrap();
    assert_eq!((bench.file_acl, bench.sectors), (Pba(0), 59 * 2));
    assert_eq!(bench.get("user.a").unwrap(), [9; 60_000]);
    bench.set("user.a", b"small again").unwrap();
    assert_eq!(bench.sectors, 0);
    assert!(bench.values.as_ref().unwrap().0.lock().is_empty());
    // A value with a wrong hash.
    bench.set("user.a", &[9; 6000]).unwrap();
    bench.values.as_ref().unwrap().0.lock().get_mut(&100).unwrap().0[5] = 0;
    assert!(matches!(bench.get("user.a"), Err(crate::Error::Corrupt(_))));
}

proptest! {
    #[test]
    fn any_changes_match_a_map(
        changes in proptest::collection::vec((0..12_u8, prop::option::of(0..700_usize)), 1..80),
        ea_inode: bool,
        area in prop::sample::select(vec![0_usize, 96, 256]),
    ) {
        let mut bench = Bench::new(area, 200, ea_inode);
        let mut model = BTreeMap::new();
        for (n, (key, len)) in changes.into_iter().enumerate() {
            let name = format!("user.{key}{}", "x".repeat(usize::from(key) * 3));
            match len {
                Some(len) => {
                    let value = vec![n as u8; len];
                    match bench.set(&name, &value) {
                        Ok(()) => { model.insert(name, value); }
                        Err(error) => prop_assert!(is_no_space::<()>(Err(error))),
                    }
                }
                None => prop_assert_eq!(bench.remove(&name).is_ok(), model.remove(&name).is_some()),
            }
            let mut names = bench.names();
            names.sort();
            prop_assert_eq!(names, model.keys().cloned().collect::<Vec<_>>());
            for (name, value) in &model {
                prop_assert_eq!(&bench.get(name).unwrap(), value);
            }
            prop_assert!(bench.sectors >= 0);
        }
        bench.remove_all();
        prop_assert_eq!((bench.sectors, bench.file_acl), (0, Pba(0)));
        prop_assert!(bench.values.is_none_or(|values| values.0.lock().is_empty()));
        let used = 200 - bench.blocks.spare.lock().len();
        prop_assert_eq!(bench.blocks.freed.lock().len(), used);
    }
}

/// The attributes that the kernel sets, and those that we set.
fn samples() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("user.small", b"value".to_vec()),
        ("user.empty", Vec::new()),
        ("trusted.t", b"secret".to_vec()),
        ("security.s", vec![0, 1, 2, 255]),
        ("user.large", vec![b'l'; 600]),
        ("user.gr\u{f6}\u{df}e", vec![b'u'; 33]),
    ]
}

fn acl() -> Vec<u8> {
    let entry = |tag: u16, permissions: u16, id: u32| {
        [&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let none = u32::MAX;
    [
        2_u32.to_le_bytes().to_vec(),
        entry(1, 6, none),
        entry(2, 4, 1000),
        entry(4, 4, none),
        entry(16, 4, none),
        entry(32, 0, none),
    ]
    .concat()
}

#[test]
fn the_kernels_attributes_are_read() {
    for args in
        [&["-b", "1024"][..], &["-b", "4096", "-I", "128"], &["-b", "1024", "-O", "^metadata_csum"]]
    {
        let image =
            TestImage::new(16 << 20, &[&["-t", "ext4", "-O", "^has_journal"], args].concat());
        image.mounted(|root| {
            let file = root.join("f");
            std::fs::File::create(&file).unwrap();
            for (name, value) in samples() {
                set_by_kernel(&file, name, &value);
            }
            set_by_kernel(&file, "system.posix_acl_access", &acl());
        });
        let open = image.open();
        let inode = open.inode(open.ino("/f"));
        let blocks = Blocks::default();
        let store = image_store(&open, &blocks);
        let view =
            XattrView { ino: open.ino("/f"), in_inode: &inode.extra, file_acl: inode.file_acl };
        for (name, value) in samples() {
            assert_eq!(store.get(view, name.as_bytes()).unwrap(), value, "{name}");
        }
        assert_eq!(store.get(view, b"system.posix_acl_access").unwrap(), acl());
        assert_eq!(store.list(view).unwrap().len(), samples().len() + 1);
    }
}

fn image_store<'o>(
    open: &'o crate::dir::tests::image::OpenImage,
    blocks: &'o Blocks,
) -> XattrStore<'o> {
    XattrStore {
        block_size: open.layout.block_size,
        cluster_size: open.layout.block_size,
        checksum: open.layout.checksum,
        value_seed: open.layout.checksum.seed().unwrap_or(0),
        buffers: &open.cache,
        source: blocks,
        values: None,
    }
}

/// `setfattr` takes the value in hexadecimal.
fn set_by_kernel(file: &Path, name: &str, value: &[u8]) {
    let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
    judge::run("setfattr", ["-n", name, "-v", &format!("0x{hex}"), file.to_str().unwrap()]);
}

fn get_by_kernel(file: &Path, name: &str) -> Vec<u8> {
    let text = judge::run(
        "getfattr",
        ["--absolute-names", "-e", "hex", "-n", name, file.to_str().unwrap()],
    );
    let Some(hex) = text.lines().find_map(|line| line.split_once("=0x")).map(|(_, hex)| hex) else {
        return Vec::new();
    };
    (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap()).collect()
}

#[test]
fn attributes_we_write_are_clean_and_the_kernels() {
    for args in
        [&["-b", "1024"][..], &["-b", "4096", "-I", "128"], &["-b", "1024", "-O", "^metadata_csum"]]
    {
        let image =
            TestImage::new(16 << 20, &[&["-t", "ext4", "-O", "^has_journal"], args].concat());
        // The kernel has created the block that our attributes go to.
        image.mounted(|root| {
            let file = root.join("f");
            std::fs::File::create(&file).unwrap();
            set_by_kernel(&file, "user.placeholder", &[1; 700]);
        });
        let open = image.open();
        let ino = open.ino("/f");
        let mut inode: Inode = open.inode(ino);
        let blocks = Blocks::default();
        let store = image_store(&open, &blocks);
        let handle = Txn::Direct(open.cache.clone()).begin(8).unwrap();
        let written = [
            ("user.placeholder", vec![2; 701]),
            ("user.small", b"one".to_vec()),
            ("trusted.t", b"two".to_vec()),
        ];
        let mut edit = XattrEdit {
            ino,
            in_inode: &mut inode.extra,
            file_acl: &mut inode.file_acl,
            goal: Pba(0),
        };
        for (name, value) in &written {
            let delta =
                store.set(&handle, &mut edit, name.as_bytes(), value, XattrMode::Set).unwrap();
            assert_eq!(delta, 0, "{name} fits where the kernel has made room");
        }
        let shown =
            store.set(&handle, &mut edit, b"system.posix_acl_access", &acl(), XattrMode::Set);
        assert_eq!(shown.unwrap(), 0);
        inode.mode = inode.mode & !0o777 | 0o640;
        drop(handle);
        open.write_inode(ino, &inode);
        open.cache.write_back().unwrap();
        drop(open);
        judge::assert_clean(&image.path);
        image.mounted(|root| {
            let file = root.join("f");
            for (name, value) in &written {
                assert_eq!(&get_by_kernel(&file, name), value, "{name}");
            }
            assert_eq!(get_by_kernel(&file, "system.posix_acl_access"), acl());
        });
    }
}
