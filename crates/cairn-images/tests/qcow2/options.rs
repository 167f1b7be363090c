//! Images with each option of `qemu-img create`: read, written, and accepted again.

use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_images::qcow2;

use crate::model::Model;
use crate::qemu::{Checked, Place, check, file, io, open, qemu, try_open};

const SIZE: usize = 1 << 20;

/// Bytes, zeros and holes by QEMU, then changes by us.
fn read_and_write(options: &str, seed: u64) {
    println!("{options}");
    let place = Place::new();
    let path = place.create("disk", options, "1M");
    let zeros = if options.contains("0.10") { "write 320k 8k" } else { "write -z 320k 128k" };
    io(&path, &["write -P 1 0 5k", "write -P 2 100k 200k", zeros, "write -P 4 1023k 1k"]);
    let mut model = Model::new(place.contents(&path), 512, seed);
    assert_eq!(model.bytes.len(), SIZE);
    model.compare(&open(&path, false));
    let disk = open(&path, true);
    for _ in 0..60 {
        model.step(&disk, 100 << 10);
    }
    model.compare(&disk);
    drop(disk);
    assert_eq!(check(&path), Checked::Clean, "{options}");
    model.same(&place.contents(&path), options);
    // QEMU goes on where we ended.
    io(&path, &["write -P 9 3k 300k"]);
    model.set(3 << 10, &[9; 300 << 10]);
    model.compare(&open(&path, false));
}

#[test]
fn versions_and_clusters() {
    read_and_write("compat=0.10", 1);
    read_and_write("compat=1.1", 2);
    for (seed, size) in [512, 4096, 2 << 20].into_iter().enumerate() {
        read_and_write(&format!("compat=1.1,cluster_size={size}"), seed as u64);
    }
    read_and_write("compat=0.10,cluster_size=1024", 3);
}

#[test]
fn refcounts_of_every_width() {
    for bits in [1, 2, 4, 8, 32, 64] {
        let options = format!("compat=1.1,refcount_bits={bits},cluster_size=512");
        read_and_write(&options, bits);
    }
}

#[test]
fn lazy_refcounts_and_preallocated_clusters() {
    read_and_write("compat=1.1,lazy_refcounts=on", 1);
    read_and_write("compat=1.1,preallocation=metadata,cluster_size=4096", 2);
}

#[test]
fn compressed_clusters_are_read_and_replaced() {
    let place = Place::new();
    let source = place.path("source.raw");
    let mut rng = fastrand::Rng::with_seed(7);
    // Text that compresses, and some that does not.
    let bytes: Vec<u8> = (0..SIZE)
        .map(|at| if at / 70_000 % 3 == 0 { rng.u8(..) } else { (at / 900) as u8 })
        .collect();
    std::fs::write(&source, &bytes).unwrap();
    for options in ["compression_type=zlib", "compression_type=zstd", "cluster_size=4k"] {
        let path = place.path("disk");
        let (from, to) = (source.to_str().unwrap(), path.to_str().unwrap());
        qemu("qemu-img", &["convert", "-c", "-f", "raw", "-O", "qcow2", "-o", options, from, to]);
        let mut model = Model::new(bytes.clone(), 512, 3);
        model.compare(&open(&path, false));
        let disk = open(&path, true);
        for _ in 0..30 {
            model.step(&disk, 50 << 10);
        }
        model.compare(&disk);
        drop(disk);
        assert_eq!(check(&path), Checked::Clean, "{options}");
        model.same(&place.contents(&path), options);
    }
}

#[test]
fn a_crash_with_lazy_refcounts_is_repaired_before_the_first_write() {
    let place = Place::new();
    for size in ["64k", "512"] {
        let path = place.create("disk", &format!("lazy_refcounts=on,cluster_size={size}"), "2M");
        // It ends without closing the image.
        let args = ["-f", "qcow2", "-c", "write -P 5 0 600k", "-c", "flush", "-c", "abort"];
        let status = std::process::Command::new("qemu-io").args(args).arg(&path).output();
        assert!(!status.unwrap().status.success());
        let info = qemu("qemu-img", &["info", "-U", path.to_str().unwrap()]);
        assert!(info.contains("lazy refcounts: true"), "{info}");
        let before = std::fs::read(&path).unwrap();
        assert_eq!(open(&path, false).read_at(599 << 10, 512).unwrap()[..], [5; 512]);
        assert!(std::fs::read(&path).unwrap() == before, "reading changes nothing");
        let mut model = Model::new(vec![0; 2 << 20], 512, 5);
        model.set(0, &[5; 600 << 10]);
        let disk = open(&path, true);
        for _ in 0..20 {
            model.step(&disk, 200 << 10);
        }
        drop(disk);
        assert_eq!(check(&path), Checked::Clean);
        model.same(&place.contents(&path), size);
    }
}

#[test]
fn what_is_not_done_is_refused_by_name() {
    let place = Place::new();
    let refused = |path: &std::path::Path| try_open(path, false).unwrap_err().to_string();
    let extended = place.create("extended", "extended_l2=on,cluster_size=64k", "1M");
    assert!(refused(&extended).contains("extended L2 entries"), "{}", refused(&extended));
    let data_file = format!("data_file={}", place.path("data").display());
    let external = place.create("external", &data_file, "1M");
    assert!(refused(&external).contains("external data file"), "{}", refused(&external));
    let unknown = place.create("unknown", "", "1M");
    let mut bytes = std::fs::read(&unknown).unwrap();
    bytes[72] = 0x80;
    std::fs::write(&unknown, &bytes).unwrap();
    assert!(refused(&unknown).contains("feature bit 63"), "{}", refused(&unknown));
    bytes[72..80].copy_from_slice(&2_u64.to_be_bytes());
    std::fs::write(&unknown, &bytes).unwrap();
    let error = try_open(&unknown, true).unwrap_err().to_string();
    assert!(error.contains("marked as damaged"), "{error}");
    assert_eq!(open(&unknown, false).geometry().size, 1 << 20);
    assert!(!file(&unknown, false).geometry().discard || cfg!(unix));
}

/// Tables of images that are written from front to back: of no cluster, of clusters under several
/// L1 entries, and of so many that refcounts fill several blocks.
#[test]
fn an_image_written_from_front_to_back_is_clean() {
    let place = Place::new();
    let path = place.path("disk");
    let last = (9 << 40) / qcow2::PACKED_CLUSTER - 1;
    for filled in [
        vec![],
        vec![0],
        vec![0, 8191, 8192, 8193, 100_000, last],
        (0..32_760).collect(),
        (3..70_000).map(|number| number * 5).collect(),
    ] {
        let head = qcow2::packed_head(9 << 40, &filled).unwrap();
        let mut file = std::fs::File::create(&path).unwrap();
        std::io::Write::write_all(&mut file, &head).unwrap();
        let data = head.len() as u64;
        file.set_len(data + filled.len() as u64 * qcow2::PACKED_CLUSTER).unwrap();
        assert_eq!(check(&path), Checked::Clean, "{} clusters", filled.len());
        // Each cluster of the disk is where it should be.
        let disk = open(&path, false);
        let few = filled.iter().enumerate().step_by(filled.len() / 7 + 1);
        for (at, number) in few {
            let bytes = [at as u8 + 1; 512];
            let place = data + at as u64 * qcow2::PACKED_CLUSTER;
            std::os::unix::fs::FileExt::write_all_at(&file, &bytes, place).unwrap();
            let seen = disk.read_at(number * qcow2::PACKED_CLUSTER, 512).unwrap();
            assert_eq!(&seen[..], bytes, "cluster {number}");
        }
    }
    assert!(qcow2::packed_head(1 << 62, &[]).is_err());
}
