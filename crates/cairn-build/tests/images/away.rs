//! Images become directories and container images, and images again.

use std::fs;
use std::path::Path;

use cairn::Format;
use cairn_build::{Compression, ExportOptions, Left, OciOptions, Rules, Target, export};
use cairn_testkit::judge;
use cairn_testkit::place::Place;
use cairn_testkit::tree::{SnapshotOptions, TreeSpec, digest_path};

use crate::back::{differences, source, text};
use crate::support::{FORMATS, built, comparable, seeded, seeds};

fn exported(from: &Path, target: Target) -> Result<Left, String> {
    let sources = vec![source(text(from))];
    let options = ExportOptions { target, sources, rules: Rules::default(), overwrite: false };
    export(options).map_err(|error| error.to_string())
}

fn directory(path: &Path) -> Target {
    let manifest = Some(path.with_extension("dump"));
    Target::Directory { path: path.to_owned(), manifest }
}

fn oci(path: &Path, compression: Compression, platform: Option<&str>) -> Target {
    let options = OciOptions { tag: Some("new".into()), platform: platform.map(str::to_owned) };
    Target::Oci { path: path.to_owned(), compression, options }
}

/// A seeded tree with an access list and a program.
fn tree(at: &Path, seed: u64) {
    seeded(at, &TreeSpec::small(seed));
    fs::create_dir_all(at.join("usr/bin")).unwrap();
    fs::copy("/bin/true", at.join("usr/bin/true")).unwrap();
    judge::run("setfacl", ["-m", "u:123456:rw,g:70000:r", text(&at.join("usr/bin/true"))]);
}

#[test]
fn a_directory_holds_what_the_image_holds() {
    for seed in seeds(2) {
        for format in FORMATS {
            println!("seed {seed}, {format}");
            let place = Place::new();
            let at = |name: &str| place.path().join(name);
            tree(&at("source"), seed);
            let whole = |name: &str| comparable(digest_path(&at(name), all()).unwrap());
            built(format, &at("image"), &[&format!("{}/", text(&at("source")))]);
            assert_eq!(exported(&at("image"), directory(&at("out"))), Ok(Left::default()));
            whole("out").assert_same(&whole("source"));
            // GNU tar compares the directory with the archive of the same image.
            let compression = Compression::None;
            let archive = Target::Archive { path: at("tar"), compression };
            exported(&at("image"), archive).unwrap();
            let words = ["--xattrs", "--acls", "--numeric-owner", "-C"];
            let files = [text(&at("out")).to_owned(), "-df".into(), text(&at("tar")).to_owned()];
            judge::run("tar", words.map(str::to_owned).into_iter().chain(files));
            // The list beside it says all of it again.
            let mut options = crate::support::options(format, &at("again"), &[]);
            options.sources = vec![source(&format!("{}/", text(&at("out"))))];
            options.rules.manifests = vec![at("out.dump")];
            cairn_build::build(options).unwrap();
            assert_eq!(differences(text(&at("image")), text(&at("again"))), []);
        }
    }
}

fn all() -> SnapshotOptions {
    SnapshotOptions::default()
}

#[test]
fn a_directory_is_new_and_whole() {
    let place = Place::new();
    let at = |name: &str| place.path().join(name);
    fs::create_dir(at("source")).unwrap();
    fs::write(at("source/file"), "x").unwrap();
    // What is there stays.
    let refused = exported(&at("source"), directory(&at("source"))).unwrap_err();
    assert!(refused.contains("is not empty"), "{refused}");
    let refused = exported(&at("source"), directory(&at("source/file"))).unwrap_err();
    assert!(refused.contains("is not a directory"), "{refused}");
    fs::create_dir(at("empty")).unwrap();
    let whole = format!("{}/", text(&at("source")));
    exported(Path::new(&whole), directory(&at("empty"))).unwrap();
    assert_eq!(fs::read(at("empty/file")).unwrap(), b"x");
    // A source that cannot be read leaves nothing: an inode without contents.
    built(Format::Ext4, &at("image"), &[&whole]);
    judge::run("debugfs", ["-w", "-R", "sif file block[0] 0xffffffff", text(&at("image"))]);
    judge::run("debugfs", ["-w", "-R", "clri file", text(&at("image"))]);
    exported(&at("image"), directory(&at("new"))).unwrap_err();
    let names = fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = names.filter(|name| text(Path::new(name)).contains("new")).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Removes extended attributes without a value: to the tar of Go's programs, such a record removes
/// an attribute.
const NO_EMPTY: &str = r#"
import os, sys
for top, below, files in os.walk(sys.argv[1]):
    for path in [top] + [os.path.join(top, name) for name in below + files]:
        for name in os.listxattr(path, follow_symlinks=False):
            if not os.getxattr(path, name, follow_symlinks=False):
                os.removexattr(path, name, follow_symlinks=False)
"#;

/// Looks at a layout with Python's modules alone: sizes, digests, the platform, the members.
const READER: &str = r#"
import gzip, hashlib, io, json, os, sys, tarfile
top = sys.argv[1]
def blob(of):
    kind, name = of["digest"].split(":")
    data = open(os.path.join(top, "blobs", kind, name), "rb").read()
    assert len(data) == of["size"], of
    assert hashlib.sha256(data).hexdigest() == name, of
    return data
assert json.load(open(top + "/oci-layout")) == {"imageLayoutVersion": "1.0.0"}
[of] = json.load(open(top + "/index.json"))["manifests"]
assert of["annotations"]["org.opencontainers.image.ref.name"] == "new", of
manifest = json.loads(blob(of))
config = json.loads(blob(manifest["config"]))
[layer] = manifest["layers"]
data = blob(layer)
if layer["mediaType"].endswith("gzip"): data = gzip.decompress(data)
assert config["rootfs"]["diff_ids"] == ["sha256:" + hashlib.sha256(data).hexdigest()]
assert config["os"] == of["platform"]["os"] == "linux", config
print(config["architecture"], of["platform"]["architecture"])
members = tarfile.open(fileobj=io.BytesIO(data)).getmembers()
assert members and members[0].isdir() and members[0].name == ".", members
assert len(os.listdir(top + "/blobs/sha256")) == 3 and len(os.listdir(top)) == 3
"#;

#[test]
fn a_container_image_is_read_by_others_and_built_again() {
    for seed in seeds(2) {
        let place = Place::new();
        let at = |name: &str| place.path().join(name);
        tree(&at("source"), seed);
        judge::run("python3", ["-c", NO_EMPTY, text(&at("source"))]);
        let whole = format!("{}/", text(&at("source")));
        built(Format::Ext4, &at("ext4"), &[&whole]);
        built(Format::F2fs, &at("f2fs"), &[&whole]);
        for (name, image, compression) in [
            ("plain", "ext4", Compression::None),
            ("gzip", "ext4", Compression::Gzip),
            ("other", "f2fs", Compression::Gzip),
            ("zstd", "ext4", Compression::Zstd),
        ] {
            exported(&at(image), oci(&at(name), compression, None)).unwrap();
            assert_eq!(differences(text(&at(image)), text(&at(name))), [], "{name}");
        }
        for name in ["plain", "gzip"] {
            let said = judge::run("python3", ["-c", READER, text(&at(name))]);
            let machine = match std::env::consts::ARCH {
                "x86_64" => "amd64",
                "aarch64" => "arm64",
                other => other,
            };
            assert_eq!(said.trim(), format!("{machine} {machine}"));
        }
        // Both formats give the same bytes.
        judge::run("diff", ["-r", text(&at("gzip")), text(&at("other"))]);
        let from = format!("oci:{}:new", text(&at("gzip")));
        let copy = format!("oci:{}:copied", text(&at("copy")));
        judge::run("skopeo", ["copy", "--quiet", &from, &copy]);
        assert_eq!(differences(text(&at("ext4")), text(&at("copy"))), []);
        let image = format!("{}:new", text(&at("gzip")));
        judge::run("umoci", ["unpack", "--image", &image, text(&at("bundle"))]);
        let unpacked = comparable(digest_path(&at("bundle/rootfs"), all()).unwrap());
        unpacked.assert_same(&comparable(digest_path(&at("source"), all()).unwrap()));
    }
}

fn tagged(path: &Path, tag: Option<&str>) -> Target {
    let options = OciOptions { tag: tag.map(str::to_owned), platform: Some("linux/amd64".into()) };
    Target::Oci { path: path.to_owned(), compression: Compression::Gzip, options }
}

/// skopeo and umoci see all images of a layout that is there already, and so does a build; a layer
/// that umoci adds has no end mark.
#[test]
fn a_layout_takes_further_images() {
    let place = Place::new();
    let at = |name: &str| place.path().join(name);
    let layout = at("layout");
    let reference = |tag: &str| format!("oci:{}:{tag}", text(&layout));
    let whole = format!("{}/", text(&at("source")));
    let again = |tag| exported(Path::new(&whole), tagged(&layout, tag));
    let add = |contents: &str, tag| {
        fs::create_dir_all(at("source")).unwrap();
        fs::write(at("source/file"), contents).unwrap();
        again(tag)
    };
    let seen = |tag: &str, name: &str| {
        built(Format::Ext4, &at("image"), &[&reference(tag)]);
        let dump = format!("dump {name} {}", text(&at("seen")));
        println!("{}", judge::debugfs(&at("image"), &dump));
        fs::read_to_string(at("seen")).unwrap()
    };
    let contents = |tag| seen(tag, "file");
    add("one", Some("1")).unwrap();
    add("two", Some("2")).unwrap();
    let blobs = || fs::read_dir(layout.join("blobs/sha256")).unwrap().count();
    assert_eq!((contents("1").as_str(), contents("2").as_str(), blobs()), ("one", "two", 6));
    add("three", Some("1")).unwrap();
    again(Some("1")).unwrap();
    assert_eq!((contents("1").as_str(), contents("2").as_str(), blobs()), ("three", "two", 9));
    assert_eq!(judge::run("umoci", ["ls", "--layout", text(&layout)]), "1\n2\n");
    for tag in ["1", "2"] {
        judge::run("skopeo", ["inspect", "--raw", &reference(tag)]);
    }
    let names = |directory: &Path| fs::read_dir(directory).unwrap().count();
    assert_eq!((names(&layout), names(&layout.join("blobs"))), (3, 1), "something is left");
    // What is refused changes nothing.
    let before = fs::read(layout.join("index.json")).unwrap();
    assert!(add("four", None).unwrap_err().contains(":latest"));
    fs::write(at("source/.wh.x"), "").unwrap();
    add("four", Some("1")).unwrap_err();
    fs::remove_file(at("source/.wh.x")).unwrap();
    assert_eq!(fs::read(layout.join("index.json")).unwrap(), before);
    assert_eq!(names(&layout.join("blobs")), 1, "something is left");
    let image = format!("{}:2", text(&layout));
    judge::run("umoci", ["insert", "--image", &image, text(&at("source/file")), "/more"]);
    assert_eq!(seen("2", "more"), "four");
    let said = crate::support::refused(Format::Ext4, &at("none"), &[&reference("3")]);
    assert!(said.contains("the tag 3; it has: 1, 2"), "{said}");
    let said = crate::support::refused(Format::Ext4, &at("none"), &[text(&layout)]);
    assert!(said.contains("oci:DIR:TAG: 1, 2"), "{said}");
    fs::write(layout.join("index.json"), "[]").unwrap();
    assert!(add("four", Some("1")).unwrap_err().contains("no index"));
}

#[test]
fn what_a_layer_cannot_say_is_refused() {
    let place = Place::new();
    let at = |name: &str| place.path().join(name);
    fs::create_dir_all(at("source/d")).unwrap();
    let whole = format!("{}/", text(&at("source")));
    let export =
        |platform| exported(Path::new(&whole), oci(&at("out"), Compression::Gzip, platform));
    let said = export(None).unwrap_err();
    assert!(said.contains("name a platform, such as linux/amd64"), "{said}");
    let said = export(Some("linux")).unwrap_err();
    assert!(said.contains("OS/ARCH"), "{said}");
    fs::write(at("source/d/.wh.x"), "").unwrap();
    let said = export(Some("linux/arm64/v8")).unwrap_err();
    assert!(said.starts_with("/d/.wh.x: ") && said.contains("exclude it"), "{said}");
    fs::remove_file(at("source/d/.wh.x")).unwrap();
    export(Some("linux/arm64/v8")).unwrap();
    let index = fs::read_to_string(at("out/index.json")).unwrap();
    assert!(index.contains(r#""variant":"v8""#), "{index}");
}
