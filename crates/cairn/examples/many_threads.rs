//! Threads write into one volume, and share its commits: `many_threads disk.img`.

use std::error::Error;
use std::io::{self, Write};
use std::thread;

use cairn::Volume;
use cairn::fs::File;

const THREADS: usize = 8;
const FILES: usize = 25;

fn work(volume: &Volume, thread: usize) -> io::Result<()> {
    volume.create_dir(format!("/thread {thread}"))?;
    for number in 0..FILES {
        let mut file = File::create(volume, format!("/thread {thread}/{number}"))?;
        file.write_all(&vec![1; 10_000])?;
        file.sync_all()?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let image = std::env::args_os().nth(1).ok_or("usage: many_threads IMAGE")?;
    let volume = Volume::open_writable(image)?;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn({
                    let volume = &volume;
                    move || work(volume, thread)
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
        })
    })?;
    let count = volume.filesystem().report().u64("journal.transactions").unwrap_or(0);
    println!("{} files are durable, in {count} transactions", THREADS * FILES);
    volume.close()?;
    Ok(())
}
