//! cpio archives, container images and other images as sources.

use std::path::Path;
use std::process::Command;

use cairn::Format;
use cairn_build::{Options, Source, build};
use cairn_testkit::judge;
use cairn_testkit::place::Place;
use cairn_testkit::tree::{SnapshotOptions, TreeSpec, digest_path};

use crate::support::{FORMATS, built, check, comparable, digest, options, refused, seeded, seeds};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn shell(script: &str) {
    judge::run("sh", ["-ec", script]);
}

#[test]
fn what_cpio_archives_arrives() {
    for seed in seeds(2) {
        let place = Place::new();
        let source = place.path().join("source");
        seeded(&source, &TreeSpec { xattrs: false, ..TreeSpec::small(seed) });
        let archive = place.path().join("archive.cpio");
        let from = text(&source);
        shell(&format!("cd {from}; find . | cpio -o --quiet -H newc >{}", text(&archive)));
        // cpio stores seconds, in 32 bits.
        let untimed = |snapshot| comparable(snapshot).without_fact("mtime", |_, _| true);
        let expected = untimed(digest_path(&source, SnapshotOptions::default()).unwrap());
        for format in FORMATS {
            let image = place.path().join("image");
            built(format, &image, &[text(&archive)]);
            check(format, &image);
            untimed(digest(&image)).assert_same(&expected);
        }
        // Two archives one behind the other, as an initramfs has them.
        let second = place.path().join("second");
        std::fs::create_dir(&second).unwrap();
        std::fs::write(second.join("later"), "x").unwrap();
        let both = place.path().join("both.cpio.gz");
        let archive = text(&archive);
        shell(&format!(
            "cd {}; (cat {archive}; find . | cpio -o --quiet -H newc) | gzip >{}",
            text(&second),
            text(&both)
        ));
        let image = place.path().join("image");
        built(Format::Ext4, &image, &[text(&both)]);
        assert!(digest(&image).get(b"later").is_some());
        assert_eq!(digest(&image).len(), expected.len() + 1);
        // Cut in the middle.
        let bytes = std::fs::read(archive).unwrap();
        let cut = place.path().join("cut.cpio");
        std::fs::write(&cut, &bytes[..bytes.len() / 2]).unwrap();
        std::fs::remove_file(&image).unwrap();
        assert!(refused(Format::Ext4, &image, &[text(&cut)]).contains("truncated"));
    }
}

/// Each name of a symbolic link has its target in the archive.
#[test]
fn names_of_a_symbolic_link_in_cpio() {
    let place = Place::new();
    let source = place.path().join("source");
    let archive = place.path().join("archive.cpio");
    shell(&format!(
        "mkdir {0}; cd {0}; ln -s target one; ln one three; ln one two; echo x >later
        find . | sort | cpio -o --quiet -H newc >{1}",
        text(&source),
        text(&archive)
    ));
    let untimed = |snapshot| comparable(snapshot).without_fact("mtime", |_, _| true);
    let expected = untimed(digest_path(&source, SnapshotOptions::default()).unwrap());
    for format in FORMATS {
        let image = place.path().join("image");
        built(format, &image, &[text(&archive)]);
        check(format, &image);
        untimed(digest(&image)).assert_same(&expected);
    }
}

#[test]
fn one_format_becomes_the_other_and_itself_again() {
    for seed in seeds(3) {
        let place = Place::new();
        let source = place.path().join("source");
        seeded(&source, &TreeSpec::small(seed));
        let at = |name: &str| place.path().join(name);
        let contents = format!("{}/", source.display());
        built(Format::Ext4, &at("ext4"), &[&contents]);
        built(Format::F2fs, &at("f2fs"), &[text(&at("ext4"))]);
        built(Format::Ext4, &at("again"), &[text(&at("f2fs"))]);
        check(Format::F2fs, &at("f2fs"));
        check(Format::Ext4, &at("again"));
        let expected = comparable(digest_path(&source, SnapshotOptions::default()).unwrap());
        for image in ["ext4", "f2fs", "again"] {
            comparable(digest(&at(image))).assert_same(&expected);
        }
        let (first, again) = (std::fs::read(at("ext4")), std::fs::read(at("again")));
        assert!(first.unwrap() == again.unwrap(), "the bytes differ after the way back");
    }
}

/// Layers with whiteouts of files, of trees and of what the same layer holds, an opaque directory,
/// hard links across layers, and devices.
pub fn layers(at: &Path) {
    shell(&format!(
        "mkdir -p {0}; cd {0}
        mkdir -p 1/etc 1/gone/deep 1/opaque/old 1/swap 1/usr/lib
        echo one >1/etc/file; echo two >1/etc/removed; echo x >1/gone/deep/file
        echo old >1/opaque/file; echo old >1/opaque/old/file; ln -s usr/lib 1/lib
        echo data >1/usr/lib/shared; mknod 1/null c 1 3; echo below >1/swap/file
        ln 1/usr/lib/shared 1/usr/lib/same
        mkdir -p 2/etc 2/opaque 2/usr/lib
        touch 2/etc/.wh.removed 2/.wh.gone 2/opaque/.wh..wh..opq
        echo new >2/opaque/new; touch 2/.wh.swap; echo file >2/swap
        ln 1/usr/lib/shared 2/usr/lib/shared; ln 2/usr/lib/shared 2/usr/lib/third
        mkdir -p 3/gone 3/etc; echo again >3/gone/file; touch 3/gone/.wh.file 3/etc/.wh.none
        tar -C 1 -cf 1.tar .; tar -C 3 -cf 3.tar .
        (cd 2; find . -type f -name '.wh*' | sort; find . | grep -v '\\.wh' ) >names
        tar -C 2 --no-recursion -cf 2.tar -T names",
        at.display()
    ));
}

/// What the layers hold together.
const TOGETHER: &str = "
etc/file=one
gone/file=again
opaque/new=new
swap=file
usr/lib/same=data
usr/lib/shared=data
usr/lib/third=data";

#[track_caller]
fn check_layers(image: &Path) {
    check(Format::Ext4, image);
    let kernel = judge::KernelMount::new(image, "ro");
    let at = kernel.path();
    let script =
        "find . -path ./lost+found -prune -o -type f -printf '%P=' -exec cat {} \\; | sort";
    let output = Command::new("sh").args(["-c", script]).current_dir(at).output().unwrap();
    assert_eq!(format!("\n{}", String::from_utf8_lossy(&output.stdout).trim()), TOGETHER);
    assert!(at.join("lib").is_symlink() && at.join("null").exists());
    assert!(!at.join("opaque/old").exists() && !at.join("gone/deep").exists());
    let links = |name| std::os::unix::fs::MetadataExt::nlink(&at.join(name).metadata().unwrap());
    assert_eq!((links("usr/lib/shared"), links("usr/lib/same")), (2, 1));
    kernel.unmount();
}

fn sha256(path: &Path) -> String {
    judge::run("sha256sum", [path])[..64].to_owned()
}

/// An OCI layout with an index of two platforms.
pub fn layout(at: &Path, work: &Path) {
    let blobs = at.join("blobs/sha256");
    std::fs::create_dir_all(&blobs).unwrap();
    let add = |path: &Path| {
        let digest = sha256(path);
        std::fs::copy(path, blobs.join(&digest)).unwrap();
        format!(r#""digest":"sha256:{digest}","size":{}"#, path.metadata().unwrap().len())
    };
    let add_text = |json: String| {
        std::fs::write(work.join("json"), json).unwrap();
        add(&work.join("json"))
    };
    shell(&format!("cd {}; gzip -k 2.tar; zstd -q 3.tar", work.display()));
    let descriptors = ["1.tar", "2.tar.gz", "3.tar.zst"].map(|name| {
        format!(
            r#"{{"mediaType":"application/vnd.oci.image.layer.v1.tar",{}}}"#,
            add(&work.join(name))
        )
    });
    let manifest = |layers: &str| add_text(format!(r#"{{"schemaVersion":2,"layers":[{layers}]}}"#));
    let kind = r#""mediaType":"application/vnd.oci.image.manifest.v1+json""#;
    let index = format!(
        r#"{{"manifests":[{{{kind},{},"platform":{{"os":"linux","architecture":"amd64"}}}},
        {{{kind},{},"platform":{{"os":"linux","architecture":"arm64","variant":"v8"}}}},
        {{{kind},{},"platform":{{"os":"unknown","architecture":"unknown"}}}}]}}"#,
        manifest(&descriptors.join(",")),
        manifest(&descriptors[0]),
        manifest(""),
    );
    let inner = add_text(index);
    std::fs::write(
        at.join("index.json"),
        format!(
            r#"{{"manifests":[{{"mediaType":"application/vnd.oci.image.index.v1+json",{inner}}}]}}"#
        ),
    )
    .unwrap();
    std::fs::write(at.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
}

#[test]
fn layers_of_container_images_are_applied_in_order() {
    let place = Place::new();
    let at = |name: &str| place.path().join(name);
    layers(&at("work"));
    layout(&at("layout"), &at("work"));
    let image = at("image");
    let of_platform = |platform: &str, source: &Path| Options {
        sources: vec![Source { name: source.into(), platform: Some(platform.into()) }],
        ..options(Format::Ext4, &image, &[])
    };
    build(of_platform("linux/amd64", &at("layout"))).unwrap();
    check_layers(&image);
    build(of_platform("linux/arm64/v8", &at("layout"))).unwrap();
    assert!(digest(&image).get(b"gone/deep/file").is_some());
    std::fs::remove_file(&image).unwrap();
    let said = refused(Format::Ext4, &image, &[text(&at("layout"))]);
    assert!(said.contains("platform") && said.contains("linux/arm64/v8"), "{said}");
    let said = build(of_platform("linux/s390x", &at("layout"))).unwrap_err().to_string();
    assert!(said.contains("linux/amd64"), "{said}");
    // The same in an archive.
    shell(&format!("tar -C {} -cf {} .", text(&at("layout")), text(&at("oci.tar"))));
    build(of_platform("linux/amd64", &at("oci.tar"))).unwrap();
    check_layers(&image);
    // Compressed, and as a stream that can be read only once.
    shell(&format!("cd {}; gzip -k oci.tar; mkfifo pipe", text(place.path())));
    build(of_platform("linux/amd64", &at("oci.tar.gz"))).unwrap();
    check_layers(&image);
    let mut writer = Command::new("cp").arg(at("oci.tar")).arg(at("pipe")).spawn().unwrap();
    build(of_platform("linux/amd64", &at("pipe"))).unwrap();
    assert!(writer.wait().unwrap().success());
    check_layers(&image);
    // As docker save writes it.
    shell(&format!(
        "cd {}; mkdir -p docker/a docker/b docker/c; cp 1.tar docker/a/layer.tar
        cp 2.tar docker/b/layer.tar; cp 3.tar docker/c/layer.tar
        echo '[{{\"Layers\":[\"a/layer.tar\",\"b/layer.tar\",\"c/layer.tar\"]}}]' \
>docker/manifest.json
        tar -C docker -cf docker.tar a b c manifest.json",
        text(&at("work"))
    ));
    built(Format::Ext4, &image, &[text(&at("work/docker.tar"))]);
    check_layers(&image);
    // The names of layers are digests.
    shell(&format!(
        "cd {0}; id=$(printf %064d 7); mv docker/a docker/$id
        sed -i s:a/:$id/: docker/manifest.json
        tar -C docker -c $id b c manifest.json | zstd -q >docker.tar.zst",
        text(&at("work"))
    ));
    built(Format::Ext4, &image, &[text(&at("work/docker.tar.zst"))]);
    check_layers(&image);
}

#[test]
fn a_layout_that_names_other_files_is_refused() {
    let place = Place::new();
    let at = |name: &str| place.path().join(name);
    std::fs::create_dir_all(at("layout/blobs/sha256")).unwrap();
    std::fs::write(at("layout/oci-layout"), "{}").unwrap();
    for digest in ["sha256:../../../../etc/passwd", "../x", "sha256:", "", "sha256:none"] {
        let index = format!(r#"{{"manifests":[{{"digest":"{digest}","size":1}}]}}"#);
        std::fs::write(at("layout/index.json"), index).unwrap();
        let said = refused(Format::Ext4, &at("image"), &[text(&at("layout"))]);
        assert!(said.contains("is not a digest") || said.contains("blobs/sha256/none"), "{said}");
    }
    // A blob of other contents than its digest says.
    let wrong = "0".repeat(64);
    std::fs::write(at("layout/blobs/sha256").join(&wrong), "{}").unwrap();
    let index = format!(r#"{{"manifests":[{{"digest":"sha256:{wrong}","size":2}}]}}"#);
    std::fs::write(at("layout/index.json"), index).unwrap();
    let said = refused(Format::Ext4, &at("image"), &[text(&at("layout"))]);
    assert!(said.contains("its digest is"), "{said}");
    // A FIFO, whose open would wait for a writer.
    let blob = at("layout/blobs/sha256").join(&wrong);
    std::fs::remove_file(&blob).unwrap();
    shell(&format!("mkfifo {}", text(&blob)));
    let said = refused(Format::Ext4, &at("image"), &[text(&at("layout"))]);
    assert!(said.contains("not a regular file"), "{said}");
}

/// Layers are read at once. What is told, and what is made, does not depend on which comes first.
#[test]
fn the_lowest_layer_that_is_damaged_is_named() {
    let place = Place::new();
    let at = |name: &str| place.path().join(name);
    layers(&at("work"));
    shell(&format!(
        "cd {}; mkdir -p docker/a docker/b docker/c; seq 200000 >4; tar -cf 4.tar 4
        gzip -c 1.tar >docker/a/layer.tar; zstd -qc 4.tar >docker/b/layer.tar
        gzip -c 3.tar >docker/c/layer.tar
        echo '[{{\"Layers\":[\"a/layer.tar\",\"b/layer.tar\",\"c/layer.tar\"]}}]' \\
            >docker/manifest.json",
        text(&at("work"))
    ));
    let pack = || {
        shell(&format!(
            "cd {}; tar -C docker -cf docker.tar a b c manifest.json",
            text(&at("work"))
        ));
        at("work/docker.tar")
    };
    let image = at("image");
    built(Format::Ext4, &image, &[text(&pack())]);
    let first = std::fs::read(&image).unwrap();
    built(Format::Ext4, &image, &[text(&pack())]);
    assert!(std::fs::read(&image).unwrap() == first, "two builds differ");
    std::fs::remove_file(&image).unwrap();
    // The contents of all layers are bounded together.
    let few =
        Options { size: cairn_build::Size::Exact(1 << 20), ..options(Format::Ext4, &image, &[]) };
    let sources = vec![Source { name: pack().into(), platform: None }];
    let said = build(Options { sources, ..few }).unwrap_err().to_string();
    assert!(said.contains("larger size"), "{said}");
    let cut = |name: &str, len: u64| {
        let file = std::fs::File::options().write(true).open(at("work/docker").join(name)).unwrap();
        file.set_len(len).unwrap();
    };
    cut("c/layer.tar", 60);
    let said = refused(Format::Ext4, &image, &[text(&pack())]);
    assert!(said.contains("c/layer.tar") && said.contains("truncated"), "{said}");
    cut("b/layer.tar", 100_000);
    let said = refused(Format::Ext4, &image, &[text(&pack())]);
    assert!(said.contains("b/layer.tar"), "{said}");
}
