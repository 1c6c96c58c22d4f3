//! All fuzz targets in one program (fuzz/README.md). `FUZZ_TARGET` names the one to run; `list` prints their names, `seeds` writes the
//! inputs to begin with below `seeds/`.

#![no_main]

mod memory;

use std::ffi::{c_char, c_int};
use std::sync::OnceLock;

use gauge_load::fuzzing::Target;
use libfuzzer_sys as _;

#[global_allocator]
static MEMORY: memory::Bounded = memory::Bounded;

static CHOSEN: OnceLock<Target> = OnceLock::new();

fn targets() -> Vec<Target> {
    [
        gauge_client::fuzzing::targets(),
        gauge_load::fuzzing::targets(),
        gauge_log::fuzzing::targets(),
        gauge_powercut::fuzzing::targets(),
        gauge_worker::fuzzing::targets(),
    ]
    .concat()
}

/// libFuzzer calls it before anything else.
#[unsafe(no_mangle)]
pub extern "C" fn LLVMFuzzerInitialize(
    _count: *const c_int,
    _arguments: *const *const *const c_char,
) -> c_int {
    let asked = std::env::var("FUZZ_TARGET").unwrap_or_default();
    match asked.as_str() {
        "list" => {
            for (name, ..) in targets() {
                println!("{name}");
            }
            std::process::exit(0);
        }
        "seeds" => {
            for (name, _, seeds) in targets() {
                let directory = std::path::Path::new("seeds").join(name);
                std::fs::create_dir_all(&directory).expect("a directory is made");
                for (number, seed) in seeds().iter().enumerate() {
                    std::fs::write(directory.join(number.to_string()), seed).expect("a seed is written");
                }
            }
            std::process::exit(0);
        }
        _ => {}
    }
    let Some(chosen) = targets().into_iter().find(|(name, ..)| *name == asked) else {
        eprintln!("FUZZ_TARGET={asked}: there is no such target; FUZZ_TARGET=list prints their names");
        std::process::exit(2);
    };
    let _ = CHOSEN.set(chosen);
    // A panic is a finding, also one that somebody would have caught.
    let ordinary = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        ordinary(panic);
        std::process::abort();
    }));
    0
}

/// libFuzzer calls it with each input.
#[unsafe(no_mangle)]
pub extern "C" fn LLVMFuzzerTestOneInput(bytes: *const u8, length: usize) -> c_int {
    let input = if length == 0 {
        &[]
    } else {
        // SAFETY: libFuzzer passes `length` bytes that live and stay as they are until this returns.
        unsafe { std::slice::from_raw_parts(bytes, length) }
    };
    if let Some((_, run, _)) = CHOSEN.get() {
        memory::begin(input.len());
        run(input);
    }
    0
}
