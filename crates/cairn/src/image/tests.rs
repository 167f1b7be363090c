use super::*;

fn parse(name: &str) -> Result<ImageSpec, Error> {
    ImageSpec::parse(OsStr::new(name))
}

#[test]
fn reads_all_forms() {
    assert_eq!(parse("/no/disk.img").unwrap(), ImageSpec::whole("/no/disk.img"));
    assert_eq!(parse("/no/disk.img#12").unwrap().part, Part::Partition(12));
    let offset = parse("/no/disk.img?offset=1M").unwrap();
    assert_eq!(
        (offset.file(), offset.part),
        (Some(Path::new("/no/disk.img")), Part::Offset(1 << 20))
    );
    let both = parse("/no/disk.img?format=raw#2").unwrap();
    assert_eq!(
        (both.file(), both.format, both.part),
        (Some(Path::new("/no/disk.img")), DiskFormat::Raw, Part::Partition(2))
    );
    assert_eq!(parse("/no/a?b#2").unwrap().file(), Some(Path::new("/no/a?b")));
    assert_eq!(parse("/no/a#b?offset=1").unwrap().file(), Some(Path::new("/no/a#b")));
}

#[test]
fn displays_what_it_parses() {
    for name in [
        "/no/a",
        "/no/a#3",
        "/no/a?offset=512",
        "/no/a?format=qcow2",
        "/no/a?format=raw&offset=512",
        "/no/a?format=zstd#4",
        "/no/a?key-file=/etc/key",
        "/no/a?format=raw&key-file=/etc/key#2",
        "/no/a?key-fd=3",
        "/no/a?offset=512&key-fd=0",
        "/no/a?io=direct",
        "/no/a?io=auto",
        "/no/a?format=raw&offset=512&io=buffered",
        "/no/a?io=direct#2",
        "nbd://host/disk",
        "nbd://host:99/disk#2",
        "nbd://host/disk?offset=512",
        "nbd://host/disk?format=qcow2#1",
        "nbd://host/disk?key-file=/etc/key",
        "nbd+unix:///disk?socket=/run/nbd#1",
        "nbd+unix:///?socket=/run/nbd&offset=4096",
    ] {
        assert_eq!(parse(name).unwrap().to_string(), name);
    }
}

#[test]
fn a_mark_in_a_directory_is_part_of_the_path() {
    assert_eq!(parse("/no/c#/disk").unwrap(), ImageSpec::whole("/no/c#/disk"));
}

#[test]
fn an_existing_name_is_taken_literally() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk#2");
    std::fs::write(&path, b"x").unwrap();
    assert_eq!(ImageSpec::parse(path.as_os_str()).unwrap(), ImageSpec::whole(&path));
}

#[test]
fn an_address_is_no_path() {
    let image = parse("nbd+unix:///disk?offset=1M&socket=a%23b").unwrap();
    assert_eq!((image.part, image.file()), (Part::Offset(1 << 20), None));
    let Location::Nbd(address) = image.canonical().unwrap().location else {
        unreachable!("it is an address")
    };
    let socket = std::env::current_dir().unwrap().join("a#b");
    assert_eq!(address.place, cairn_nbd::Place::Unix(socket));
}

#[test]
fn refuses_nonsense() {
    for name in [
        "",
        "/no/a#0",
        "/no/a#x",
        "/no/a?size=3",
        "/no/a?offset=",
        "/no/a?offset=9999999999T",
        "/no/a?format=vmdk",
        "/no/a?key-file=",
        "/no/a?key-fd=",
        "/no/a?key-fd=x",
        "/no/a?key-fd=-1",
        "/no/a?offset=1&offset=2",
        "/no/a?offset=1#2",
        "nbd://",
        "nbd://host/disk#0",
        "nbd://host/disk?offset=1#1",
        "nbd://host/disk?offset=1&offset=2",
        "nbd://host/disk?size=3",
    ] {
        let error = parse(name).expect_err(name);
        assert!(matches!(error.cause(), Cause::Address(_)), "{name}: {error}");
    }
}

#[test]
fn object_volumes_are_named_with_what_opens_them() {
    for name in [
        "s3://bucket/a/b@web",
        "file-store:///srv/pool@x#2",
        "file-store:///srv/pool?cache=/var/cache/x&cache-size=1000&memory=4096&take-over",
        "file-store:///srv/pool?log=/var/x.log&log-size=65536&discard-log",
        "file-store:///srv/pool?log=/var/x.log&export-log=/var/x.img&take-over",
        "gs://bucket/p?memory=4096&format=raw&key-file=/etc/key#1",
        "az://box?offset=512",
    ] {
        let image = ImageSpec::parse(name.as_ref()).unwrap();
        assert!(image.file().is_none() && image.exists(), "{name}");
        assert_eq!(image.to_string(), name);
        assert_eq!(ImageSpec::parse(&image.to_os_string()).unwrap(), image);
    }
    let parse = |name: &str| ImageSpec::parse(name.as_ref()).unwrap();
    let (plain, cached) = (parse("s3://bucket/a"), parse("s3://bucket/a@main?cache=/c"));
    assert!(plain != cached && plain.is_same_disk(&cached));
    assert!(!plain.is_same_disk(&parse("s3://bucket/a@other")));
    for (name, said) in [
        ("s3://bucket/a?cache-size=1G", "cache=DIR"),
        ("s3://bucket/a?cache=", "only cache=DIR"),
        ("s3://bucket/a?discard-log", "name it with log=FILE"),
        ("s3://bucket/a?log=", "only cache=DIR"),
        ("s3://bucket/a?memory=x", "no size"),
        ("s3://bucket/a#0", "partition number"),
        ("s3://bucket/a?take-over=1", "only cache=DIR"),
    ] {
        let error = ImageSpec::parse(name.as_ref()).unwrap_err().to_string();
        assert!(error.contains(said), "{name}: {error}");
    }
}
