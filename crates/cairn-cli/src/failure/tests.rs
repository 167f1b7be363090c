use super::*;

#[test]
fn every_failure_is_one_line() {
    let failure = Failure::new(Status::Failed, "a\nb").in_image("disk.img");
    assert_eq!(failure.to_string(), r"disk.img: a\nb");
}

#[test]
fn later_failures_are_lines_of_their_own_and_leave_the_status() {
    let corrupt = Failure::volume("/b", &cairn_vfs::Error::Stale);
    let both = Failure::volume("/a", &cairn_vfs::Error::NotFound).and(corrupt).in_image("x");
    let lines: Vec<String> = both.lines().map(ToString::to_string).collect();
    assert_eq!(both.status, Status::Failed);
    assert_eq!(
        lines,
        [
            "x: /a: no such file or directory: check the name; `cairn ls` lists a directory",
            "x: /b: stale inode number: run `cairn check` on the image, which says what repairs it"
        ]
    );
    let full = || Failure::host("standard output", &std::io::ErrorKind::StorageFull.into());
    assert_eq!(full().and(full()).lines().count(), 1);
}

#[test]
fn system_errors_read_as_part_of_a_sentence() {
    let error = std::io::Error::from_raw_os_error(2);
    let text = Failure::host("/x", &error).to_string();
    assert_eq!(text, "/x: no such file on this host: check the name");
}

#[test]
fn damage_names_the_command_that_shows_it() {
    let advice = "run `cairn check` on";
    let failure = Failure::volume("/x", &cairn_vfs::Error::Stale);
    assert_eq!(failure.status, Status::Corrupt);
    assert!(failure.to_string().contains(advice), "{failure}");
    let other = Failure::volume("/x", &cairn_vfs::Error::NotFound);
    assert!(!other.to_string().contains("cairn check"), "{other}");
}

#[test]
fn in_use_and_missing_images_have_statuses_of_their_own() {
    let cause = |kind| Cause::Open(cairn_block::Error::new(kind, "open", "why"));
    assert_eq!(status_of(&cause(ErrorKind::InUse)), Status::Busy);
    assert_eq!(status_of(&cause(ErrorKind::NotFound)), Status::NoImage);
    assert_eq!(status_of(&cause(ErrorKind::Unsupported)), Status::NoImage);
    assert_eq!(status_of(&cause(ErrorKind::UnsupportedFeature)), Status::Unsupported);
    let read = cairn_block::Error::new(ErrorKind::Io, "read", "why");
    assert_eq!(status_of(&Cause::Device(read)), Status::Io);
    assert_eq!(status_of(&Cause::UnknownFormat { hint: None }), Status::Corrupt);
}

#[test]
fn all_have_their_turn_and_the_first_failure_gives_the_status() {
    let mut done = Vec::new();
    let failure = each([1, 2, 3, 4], |n| {
        done.push(n);
        let status = if n == 2 { Status::Corrupt } else { Status::Failed };
        if n % 2 == 0 { Err(Failure::new(status, n.to_string())) } else { Ok(()) }
    });
    let failure = failure.unwrap_err();
    assert_eq!(
        (done, failure.status, failure.lines().count()),
        (vec![1, 2, 3, 4], Status::Corrupt, 2)
    );
    let mut turns = 0;
    let gone = each([1, 2], |_| {
        turns += 1;
        Err(Failure::closed_pipe())
    });
    assert_eq!((gone.unwrap_err().status, turns), (Status::Success, 1));
}
