//! Which transport a mount takes.

use cairn_fuse::MountOptions;
use cairn_testkit::uring;

use crate::fixture::{Mounted, require_mounting};

/// Where rings are allowed, `auto` takes them for the options of `build`, and for no others.
#[test]
fn auto_takes_rings_for_build_where_they_are_allowed() {
    require_mounting();
    let Some(_allowed) = uring::allow() else { return };
    let taken = |words: &str| {
        let mut options = MountOptions::new("model");
        for word in words.split(',').filter(|word| !word.is_empty()) {
            assert!(options.set(word).unwrap(), "{word} is an option");
        }
        let mounted = Mounted::with(&options);
        let data: Vec<u8> = (0..3 << 20).map(|at| (at / 4099) as u8).collect();
        std::fs::write(mounted.path("f"), &data).unwrap();
        assert!(std::fs::read(mounted.path("f")).unwrap() == data, "{words}");
        mounted.count().text("transport").unwrap().to_owned()
    };
    for (words, transport) in [
        ("", "dev"),
        ("no_open", "dev"),
        ("build", "ring"),
        ("build,writeback_cache", "dev"),
        ("build,transport=dev", "dev"),
        ("transport=dev,transport=auto,build", "ring"),
        ("transport=ring", "ring"),
    ] {
        assert_eq!(taken(words), transport, "{words}");
    }
}
