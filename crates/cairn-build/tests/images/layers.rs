//! Layers of container images: they mean the same in any order of their members, umoci comes to the
//! same tree, and none that has changed is taken.

use std::path::{Path, PathBuf};

use cairn::Format;
use cairn_build::{CompareOptions, Limits, Rules, Source, Tree, assemble, compare};
use cairn_testkit::judge;
use cairn_testkit::place::Place;
use cairn_testkit::tree::{Snapshot, SnapshotOptions, digest_path};

use crate::members::{Member, archive, file};
use crate::others::{layers, layout};
use crate::support::{built, check, comparable, digest, refused};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

const fn directory(name: &[u8]) -> Member<'_> {
    Member(name, b'5', b"", 0, b"")
}

const fn link<'a>(name: &'a [u8], target: &'a [u8]) -> Member<'a> {
    Member(name, b'1', target, 0, b"")
}

/// What lies below.
const BELOW: [Member<'_>; 11] = [
    file(b"gone", b"old"),
    file(b"replaced", b"old"),
    file(b"linked", b"old"),
    directory(b"tree"),
    file(b"tree/old", b"old"),
    directory(b"tree/deep"),
    file(b"tree/deep/old", b"old"),
    directory(b"opaque"),
    file(b"opaque/old", b"old"),
    file(b"opaque/kept", b"old"),
    file(b"kind", b"old"),
];

/// A layer with whiteouts of what it adds itself.
const OVER: [Member<'_>; 11] = [
    file(b".wh.gone", b""),
    file(b".wh.replaced", b""),
    file(b"replaced", b"new"),
    file(b".wh.tree", b""),
    directory(b"tree"),
    file(b"tree/new", b"new"),
    file(b"opaque/.wh..wh..opq", b""),
    file(b"opaque/kept", b"new"),
    file(b".wh.kind", b""),
    directory(b"kind"),
    file(b"kind/new", b"new"),
];

/// Hard links of a layer: to what it removes from lower layers, to what it replaces, to another
/// link, and a name that goes.
const LINKS: [Member<'_>; 7] = [
    link(b"of-gone", b"gone"),
    link(b"of-replaced", b"replaced"),
    link(b"of-linked", b"linked"),
    link(b"of-tree", b"tree/deep/old"),
    link(b"of-link", b"of-linked"),
    file(b".wh.linked", b""),
    file(b".wh.none", b""),
];

/// A layout with layers of these members.
fn image(place: &Path, layers: &[&[Member<'_>]]) -> PathBuf {
    let layout = place.join("layout");
    let _ = std::fs::remove_dir_all(&layout);
    let mut script = "umoci init --layout layout; umoci new --image layout:a".to_owned();
    for (number, members) in layers.iter().enumerate() {
        std::fs::write(place.join(format!("{number}.tar")), archive(members)).unwrap();
        script += &format!("; umoci raw add-layer --image layout:a {number}.tar");
    }
    judge::run("sh", ["-ec", &format!("cd {}; {script}", text(place))]);
    layout
}

/// What docker save would write, without a program that does.
fn saved(path: &Path, layers: &[&[Member<'_>]]) -> Tree {
    let names: Vec<_> = (0..layers.len()).map(|number| format!("{number}/layer.tar")).collect();
    let manifest = format!("[{{\"Layers\":{names:?}}}]");
    let archives: Vec<_> = layers.iter().map(|members| archive(members)).collect();
    let mut members = vec![file(b"manifest.json", manifest.as_bytes())];
    let parts = names.iter().zip(&archives);
    members.extend(parts.map(|(name, bytes)| file(name.as_bytes(), bytes)));
    std::fs::write(path, archive(&members)).unwrap();
    let source = Source { name: path.into(), platform: None };
    assemble(&[source], Rules::default(), Limits::UNBOUNDED, std::env::temp_dir()).unwrap()
}

#[test]
fn the_members_of_a_layer_mean_the_same_in_any_order() {
    let place = Place::new();
    let members = [&OVER[..], &LINKS].concat();
    // Contents stay in the archives.
    let at = |name: &str| place.path().join(name);
    let first = saved(&at("first.tar"), &[&BELOW, &members]);
    let contents = |tree: &Tree, path: &str| {
        let node = tree.find(path.as_bytes()).unwrap_or_else(|| panic!("{path} is not there"));
        let cairn_build::Kind::Regular(file) = &node.kind else {
            panic!("{path}: {:?}", node.kind)
        };
        let mut bytes = vec![0; usize::try_from(file.size).unwrap()];
        tree.read(file, 0, &mut bytes).unwrap();
        (String::from_utf8(bytes).unwrap(), node.links)
    };
    for (path, wanted, links) in [
        ("replaced", "new", 2),
        ("of-replaced", "new", 2),
        ("of-gone", "old", 1),
        ("of-linked", "old", 2),
        ("of-link", "old", 2),
        ("of-tree", "old", 1),
        ("tree/new", "new", 1),
        ("opaque/kept", "new", 1),
        ("kind/new", "new", 1),
    ] {
        assert_eq!(contents(&first, path), (wanted.to_owned(), links), "{path}");
    }
    for path in ["gone", "linked", "tree/old", "tree/deep", "opaque/old"] {
        assert!(first.find(path.as_bytes()).is_none(), "{path} is there");
    }
    let path = at("other.tar");
    for seed in 0..200 {
        let mut order = members.clone();
        fastrand::Rng::with_seed(seed).shuffle(&mut order);
        // A file below a directory that is still a file has no place.
        let at = |name: &[u8]| order.iter().position(|member| member.0 == name).unwrap();
        let (directory, below) = (at(b"kind"), at(b"kind/new"));
        if directory > below {
            order.swap(directory, below);
        }
        let tree = saved(&path, &[&BELOW, &order]);
        let mut differing = Vec::new();
        let options = CompareOptions { times: true, quick: false };
        compare(&first, &tree, options, &mut |difference| {
            differing.push(String::from_utf8_lossy(&difference.path).into_owned());
        })
        .unwrap();
        let names: Vec<_> = order.iter().map(|member| String::from_utf8_lossy(member.0)).collect();
        assert!(differing.is_empty(), "seed {seed}: {differing:?} differ: {names:?}");
    }
}

/// umoci takes members in their order. Where it takes whiteouts last or first, so do we.
#[test]
fn umoci_unpacks_the_same() {
    let place = Place::new();
    let reversed: Vec<Member<'static>> = OVER.iter().rev().copied().collect();
    // Links come before the whiteouts of their targets; umoci finds them no more afterwards.
    let linked = [&LINKS[..], &OVER].concat();
    let kind = |members: Vec<Member<'static>>| -> Vec<Member<'static>> {
        members.into_iter().filter(|member| !member.0.starts_with(b"kind")).collect()
    };
    let orders = [OVER.to_vec(), kind(reversed), linked];
    for (number, order) in orders.iter().enumerate() {
        // umoci has the old file in a link that comes before what replaces it.
        let order: Vec<_> =
            order.iter().filter(|member| member.0 != b"of-replaced").copied().collect();
        let layout = image(place.path(), &[&BELOW, &order]);
        let unpacked = place.path().join("unpacked");
        let _ = std::fs::remove_dir_all(&unpacked);
        let tag = format!("{}:a", text(&layout));
        judge::run("umoci", ["raw", "unpack", "--image", &tag, text(&unpacked)]);
        let out = place.path().join("image");
        built(Format::Ext4, &out, &[&format!("oci:{tag}")]);
        check(Format::Ext4, &out);
        let untimed = |snapshot: Snapshot| comparable(snapshot).without_fact("mtime", |_, _| true);
        let expected = untimed(digest_path(&unpacked, SnapshotOptions::default()).unwrap());
        println!("order {number}");
        untimed(digest(&out)).assert_same(&expected);
    }
}

/// A blob that is not what its digest says is named, and no image is left.
#[test]
fn a_changed_layer_is_refused() {
    let place = Place::new();
    let at = |name: &str| place.path().join(name);
    layers(&at("work"));
    layout(&at("layout"), &at("work"));
    let image = at("image");
    let of = |path: &Path| {
        let source = Source { name: path.into(), platform: Some("linux/amd64".into()) };
        cairn_build::build(cairn_build::Options {
            sources: vec![source],
            ..crate::support::options(Format::Ext4, &image, &[])
        })
    };
    of(&at("layout")).unwrap();
    std::fs::remove_file(&image).unwrap();
    let mut changed = 0;
    for entry in std::fs::read_dir(at("layout/blobs/sha256")).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        let (mut other, before) = (bytes.clone(), changed);
        // In layers a byte of a name or of contents, and the blanks of a document.
        let place = other.len() / 2;
        other[place] ^= 1;
        std::fs::write(&path, &other).unwrap();
        // The manifests of other platforms are not read.
        if let Err(error) = of(&at("layout")) {
            let said = error.to_string();
            assert!(said.contains(name) && said.contains("its digest is sha256:"), "{said}");
            assert!(!image.exists(), "{name}");
            changed += 1;
        }
        let _ = std::fs::remove_file(&image);
        // The size is compared, too.
        std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        assert_eq!(of(&at("layout")).is_err(), changed > before, "{name}");
        let _ = std::fs::remove_file(&image);
        std::fs::write(&path, &bytes).unwrap();
    }
    // The index, the manifest and three layers.
    assert_eq!(changed, 5);
    of(&at("layout")).unwrap();
}

/// The configuration of an archive of docker save has the digests of decompressed layers.
#[test]
fn a_changed_layer_of_docker_save_is_refused() {
    let place = Place::new();
    let at = |name: &str| place.path().join(name);
    let script = |changed: &str| {
        let script = format!(
            "cd {}; rm -rf docker; mkdir -p docker/a docker/b; echo one >1; echo two >2
            tar -cf docker/a/layer.tar 1; tar -cf 2.tar 2; gzip -c 2.tar >docker/b/layer.tar
            a=$(sha256sum <docker/a/layer.tar | cut -c -64); b=$(sha256sum <2.tar | cut -c -64)
            echo '{{\"rootfs\":{{\"diff_ids\":[\"sha256:'$a'\",\"sha256:'$b'\"]}}}}' >c
            c=$(sha256sum <c | cut -c -64); cp c docker/$c.json; {changed}
            echo '[{{\"Config\":\"'$c'.json\",\"Layers\":[\"a/layer.tar\",\"b/layer.tar\"]}}]' \
                >docker/manifest.json
            tar -C docker -cf docker.tar .",
            text(place.path())
        );
        judge::run("sh", ["-ec", &script]);
    };
    script(":");
    let (image, archive) = (at("image"), at("docker.tar"));
    built(Format::Ext4, &image, &[text(&archive)]);
    std::fs::remove_file(&image).unwrap();
    for (changed, name) in [
        ("echo six >1; tar -cf docker/a/layer.tar 1", "a/layer.tar"),
        ("echo six >2; tar -cf 2.tar 2; gzip -c 2.tar >docker/b/layer.tar", "b/layer.tar"),
        ("echo ' ' >>docker/$c.json", ".json"),
    ] {
        script(changed);
        let said = refused(Format::Ext4, &image, &[text(&archive)]);
        assert!(said.contains(name) && said.contains("its digest is sha256:"), "{said}");
    }
}

/// An open of a FIFO would wait for a writer.
#[test]
fn a_layer_that_is_a_fifo_is_refused() {
    let place = Place::new();
    let at = |name: &str| place.path().join(name);
    layers(&at("work"));
    layout(&at("layout"), &at("work"));
    let largest = std::fs::read_dir(at("layout/blobs/sha256")).unwrap().map(|entry| entry.unwrap());
    let largest = largest.max_by_key(|entry| entry.metadata().unwrap().len()).unwrap().path();
    std::fs::remove_file(&largest).unwrap();
    judge::run("mkfifo", [&largest]);
    let said = cairn_build::build(cairn_build::Options {
        sources: vec![Source { name: at("layout").into(), platform: Some("linux/amd64".into()) }],
        ..crate::support::options(Format::Ext4, &at("image"), &[])
    });
    let said = said.unwrap_err().to_string();
    assert!(said.contains("not a regular file") && !at("image").exists(), "{said}");
}

/// What umoci makes, with one layer's digest in the configuration changed, or one left out.
#[test]
fn layers_are_those_of_the_configuration() {
    let place = Place::new();
    let layout = image(place.path(), &[&BELOW, &OVER]);
    let script = format!(
        r#"import hashlib, json, os, sys, zlib
blobs = "{0}/blobs/sha256/"
def put(value):
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    name = hashlib.sha256(data).hexdigest()
    open(blobs + name, "wb").write(data)
    return {{"digest": "sha256:" + name, "size": len(data)}}
def get(of): return json.load(open(blobs + of["digest"][7:]))
index = json.load(open("{0}/index.json"))
manifest = get(index["manifests"][0])
config = get(manifest["config"])
ids = config["rootfs"]["diff_ids"]
if sys.argv[1] == "plain":
    for layer in manifest["layers"]:
        data = open(blobs + layer["digest"][7:], "rb").read()
        layer.update(put(zlib.decompress(data, 47)))
if sys.argv[1] == "swap": ids.reverse()
if sys.argv[1] == "short": ids.pop()
if sys.argv[1] == "last": ids[1] = "sha256:" + "0" * 64
if sys.argv[1] == "none": ids.clear()
manifest["config"].update(put(config))
index["manifests"][0].update(put(manifest))
json.dump(index, open("{0}/index.json", "w"))
"#,
        text(&layout)
    );
    let changed = |how: &str| judge::run("python3", ["-c", &script, how]);
    let out = place.path().join("image");
    let name = format!("oci:{}:a", text(&layout));
    for (how, why) in [
        ("as it is", None),
        ("swap", Some("is not the layer that the configuration")),
        ("swap", None),
        ("plain", None),
        ("swap", Some("is not the layer that the configuration")),
        ("swap", None),
        ("last", Some("which is sha256:0000")),
        ("short", Some("has 2 layers, and its configuration 1")),
        ("none", None),
    ] {
        changed(how);
        match why {
            None => drop(built(Format::Ext4, &out, &[&name])),
            Some(why) => {
                let said = refused(Format::Ext4, &out, &[&name]);
                assert!(said.contains(why), "{how}: {said}");
            }
        }
        let _ = std::fs::remove_file(&out);
    }
}

/// Whiteouts remove nothing through a link of a lower layer; they are for the layer's own directory
/// in its place.
#[test]
fn a_whiteout_below_a_link_is_an_error() {
    const LINK: Member<'_> = Member(b"link", b'2', b"tree", 0, b"");
    let place = Place::new();
    let below = [&BELOW[..], &[LINK]].concat();
    let path = place.path().join("saved.tar");
    for whiteout in [&b"link/.wh.old"[..], b"link/.wh..wh..opq", b"gone/.wh.old", b"link/x/.wh.y"] {
        let whiteout = file(whiteout, b"");
        let names = ["0/layer.tar", "1/layer.tar"];
        let manifest = format!("[{{\"Layers\":{names:?}}}]");
        let archives = [archive(&below), archive(&[whiteout])];
        let members = [
            file(b"manifest.json", manifest.as_bytes()),
            file(names[0].as_bytes(), &archives[0]),
            file(names[1].as_bytes(), &archives[1]),
        ];
        std::fs::write(&path, archive(&members)).unwrap();
        let said = refused(Format::Ext4, &place.path().join("image"), &[text(&path)]);
        let member = whiteout.0.escape_ascii().to_string();
        assert!(said.contains(&member) && said.contains("its directory"), "{said}");
        // With a directory of its own there, in any order.
        let top = whiteout.0.split(|byte| *byte == b'/').next().unwrap();
        let mut over = vec![whiteout, directory(top)];
        for _ in 0..2 {
            let tree = saved(&path, &[&below, &over]);
            assert!(matches!(tree.find(top).unwrap().kind, cairn_build::Kind::Directory(_)));
            assert!(tree.find(b"tree/old").is_some(), "{member}");
            over.reverse();
        }
        // Or if the layer removes what is there.
        let removes = [b".wh.", top].concat();
        let tree = saved(&path, &[&below, &[whiteout, file(&removes, b"")]]);
        assert!(tree.find(top).is_none() && tree.find(b"tree/old").is_some(), "{member}");
    }
}
