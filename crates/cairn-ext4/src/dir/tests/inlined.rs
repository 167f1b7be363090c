//! Inline directories and their conversion.

use super::inline::{HEAD_LEN, InlineDir, InlineDirMut};
use super::*;

/// Fills an inline directory until it needs blocks.
fn filled(tail_len: usize, settings: &DirSettings) -> ([u8; HEAD_LEN], Vec<u8>, Vec<String>) {
    let (mut head, mut tail) = ([0xff; HEAD_LEN], vec![0xff; tail_len]);
    let mut dir = InlineDirMut { head: &mut head, tail: &mut tail };
    dir.init_empty(Ino(2));
    assert!(dir.view().is_empty(settings).unwrap());
    let mut names = Vec::new();
    for n in 0_u64.. {
        let name = format!("name {n}");
        if !dir.add(settings, named(name.as_bytes()), Ino(20 + n), FileKind::Fifo).unwrap() {
            break;
        }
        names.push(name);
    }
    (head, tail, names)
}

fn listed(dir: &InlineDir<'_>, settings: &DirSettings, piece: usize) -> Vec<String> {
    let (mut names, mut position) = (Vec::new(), 0);
    loop {
        let before = position;
        let mut left = piece;
        dir.readdir(settings, position, &mut |entry| {
            position = entry.next;
            names.push(String::from_utf8(entry.name.into_bytes()).unwrap());
            left -= 1;
            left > 0
        })
        .unwrap();
        if position == before {
            return names;
        }
    }
}

#[test]
fn names_fill_both_regions_and_survive_the_conversion() {
    for dir_index in [true, false] {
        let settings = DirSettings { dir_index, ..small_blocks() };
        for tail_len in [0, 12, 72] {
            let (mut head, mut tail, mut names) = filled(tail_len, &settings);
            assert!(names.len() >= 3, "{names:?}");
            let mut dir = InlineDirMut { head: &mut head, tail: &mut tail };
            assert_eq!(dir.view().parent(), Ino(2));
            dir.remove(&settings, b"name 1").unwrap();
            names.remove(1);
            assert!(
                dir.remove(&settings, b"name 1").is_err() && dir.remove(&settings, b"..").is_err()
            );
            dir.set_target(&settings, b"name 0", Ino(99), FileKind::Regular).unwrap();
            dir.set_target(&settings, b"..", Ino(13), FileKind::Directory).unwrap();
            let view = dir.view();
            let found = view.lookup(&settings, b"name 0").unwrap().unwrap();
            assert_eq!((found.ino, found.kind), (Ino(99), Some(FileKind::Regular)));
            let mut all = listed(&view, &settings, 2);
            assert_eq!(all[..2], [".", ".."]);

            let blocks = ListedDir::in_memory(settings, 10);
            let blocks =
                ListedDir { used: Mutex::default(), spare: Mutex::new(vec![Pba(9)]), ..blocks };
            view.convert(&blocks, &blocks.handle()).unwrap();
            assert_eq!(dots(&blocks).unwrap().parent, 13);
            let mut first = None;
            view.readdir(&settings, 0, &mut |entry| {
                first = Some(entry.next);
                entry.name == b"." || entry.name == b".."
            })
            .unwrap();
            // A position from before the conversion continues behind the same name.
            let mut rest = Vec::new();
            readdir(&blocks, first.unwrap(), &mut |entry| {
                rest.push(String::from_utf8(entry.name.into_bytes()).unwrap());
                true
            })
            .unwrap();
            assert_eq!(rest, all[3..]);
            all.drain(..2);
            all.sort();
            assert_eq!(all, names);
        }
    }
}

#[test]
fn damaged_inline_directories_are_errors() {
    let settings = small_blocks();
    let (head, tail, _) = filled(72, &settings);
    for at in 0..HEAD_LEN + tail.len() {
        for byte in [0, 1, 0x7f, 0xff] {
            let (mut head, mut tail) = (head, tail.clone());
            match at.checked_sub(HEAD_LEN) {
                Some(at) => tail[at] = byte,
                None => head[at] = byte,
            }
            let mut dir = InlineDirMut { head: &mut head, tail: &mut tail };
            let _ = dir.view().readdir(&settings, 0, &mut |_| true);
            let _ = dir.view().lookup(&settings, b"name 3");
            let _ = (
                dir.remove(&settings, b"name 2"),
                dir.add(&settings, named(b"x"), Ino(3), FileKind::Regular),
            );
        }
    }
    // A region too short for an entry.
    let dir = InlineDir { head: &head, tail: &[0; 8] };
    assert!(dir.is_empty(&settings).is_err());
}
