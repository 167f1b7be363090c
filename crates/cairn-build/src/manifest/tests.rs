//! Which form a file has, and files that nobody should have made.

use proptest::prelude::*;

use super::*;

#[test]
fn forms_follow_from_contents() {
    for (form, text) in [
        (Form::Mtree, "#mtree\n./a type=file\n"),
        (Form::Mtree, "# user: root\n#\n/set type=file uid=0\n. type=dir\n"),
        (Form::Mtree, ". type=dir mode=0755\n"),
        (Form::Mtree, "bin/ls mode=0755 \\\n uid=0\n"),
        (Form::Dump, "/ 4096 40755 4 0 0 0 1.0 - - -\n"),
        (Form::DeviceTable, "# x\n/dev d 755 0 0 - - - - -\n"),
        (Form::DeviceTable, "/dev d 755 0 0\n/dev/null c 666 0 0 1 3 0 0 -\n"),
        (Form::DeviceTable, "/etc/shadow f 600 0 0\n"),
        (Form::DeviceTable, "/srv r -1 5 6 - - - - -\n|xattr cap_chown+p\n"),
        (Form::Pseudo, "/dev d 755 0 0\n/dev/null c 666 0 0 1 3\n"),
        (Form::Pseudo, "a m 4755 root root\n"),
        (Form::Pseudo, "\"a b\" x user.a=b\n"),
        (Form::Pseudo, "motd f 444 root root date\n"),
        (Form::FsConfig, " 0 0 755\nsystem 0 0 755\n"),
        (Form::FsConfig, "system/bin/ping 0 2000 755 capabilities=0x0\n"),
        (Form::FileContexts, "# x\n/.*  system_u:object_r:default_t:s0\n"),
        (Form::FileContexts, "/(vendor|system/vendor)/bin -d u:object_r:v:s0\n"),
        (Form::FileContexts, "/proc -d <<none>>\n"),
        (Form::Fakeroot, "dev=fe00,ino=3,mode=100644,uid=0,gid=0,nlink=1,rdev=0\n"),
    ] {
        assert_eq!(recognise(text.as_bytes()), Some(form), "{text}");
    }
    for text in ["Dear diary\n", "\0\0\0", "a b c d\n", "PK\x03\x04"] {
        assert_eq!(recognise(text.as_bytes()), None, "{text}");
        let said = Manifest::parse("x".into(), text.as_bytes()).err().unwrap().to_string();
        assert!(said.contains("device table") && said.starts_with("x: "), "{said}");
    }
    assert!(Manifest::parse("x".into(), b"# nothing\n\n").is_ok());
}

/// Lines that hold pieces of every form, which random bytes would not find.
fn hostile_line() -> impl Strategy<Value = Vec<u8>> {
    let pieces = prop::sample::select(vec![
        "/",
        "a",
        "..",
        ".",
        "\\",
        "\\x4",
        "\\04",
        "\"",
        " ",
        "\t",
        "-",
        "--",
        "-1",
        "@",
        "=",
        "0",
        "755",
        "4294967295",
        "18446744073709551615",
        "c",
        "d",
        "f",
        "x",
        "r",
        "m",
        "/set",
        "/unset",
        "type=",
        "dir",
        "mode=",
        "uid=",
        "time=1.",
        "device=native,",
        ",",
        "link=",
        "dev=",
        "ino=",
        "|xattr ",
        "cap_chown+ep",
        "capabilities=0x",
        "selabel=",
        "user.a=",
        "<<none>>",
        "u:r:t:s0",
        "(",
        ")",
        "[",
        "|",
        "*",
        "{9",
        "}",
        "#mtree",
        "\n",
        "\r",
        "\u{ff}",
    ]);
    let word = prop_oneof![
        4 => pieces.prop_map(|piece| piece.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..4),
    ];
    prop::collection::vec(word, 0..40).prop_map(|words| words.concat())
}

proptest! {
    /// Whatever the bytes are, every reader gives entries or the number of a line that exists.
    #[test]
    fn no_bytes_panic(text in prop_oneof![
        hostile_line(),
        prop::collection::vec(any::<u8>(), 0..200),
    ]) {
        let lines = text.split(|byte| *byte == b'\n').count();
        let check = |error: Option<(usize, String)>| {
            if let Some((line, why)) = error {
                assert!((1..=lines).contains(&line) && !why.is_empty(), "line {line}: {why}");
            }
        };
        check(mtree::parse(&text).err());
        check(dump::parse(&text).err());
        check(device_table::parse(&text).err());
        check(pseudo::parse(&text).err());
        check(FsConfig::parse(&text).err());
        check(FileContexts::parse(&text).err());
        check(fakeroot::parse(&text).err());
        let _ = recognise(&text);
        drop(Manifest::parse("x".into(), &text));
    }
}
