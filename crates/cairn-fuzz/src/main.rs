//! The fuzzer: libFuzzer with the target that `CAIRN_FUZZ_TARGET` names. scripts/fuzz runs it.

#![no_main]

use std::sync::OnceLock;

use cairn_fuzz::{Target, targets};
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};

static TARGET: OnceLock<&'static Target> = OnceLock::new();

fn target() -> &'static Target {
    TARGET.get_or_init(|| {
        let name = std::env::var("CAIRN_FUZZ_TARGET").unwrap_or_default();
        targets::find(&name).unwrap_or_else(|| {
            let names: Vec<&str> = cairn_fuzz::TARGETS.iter().map(|target| target.name).collect();
            eprintln!("CAIRN_FUZZ_TARGET={name}: name one of {}", names.join(", "));
            std::process::exit(2);
        })
    })
}

fuzz_target!(init: { target(); }, |data: &[u8]| {
    (target().run)(data);
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    if target().has_records {
        cairn_fuzz::mutate(data, size, max_size, seed, &mut fuzzer_mutate)
    } else {
        fuzzer_mutate(data, size, max_size)
    }
});
