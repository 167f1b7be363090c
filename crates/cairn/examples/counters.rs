//! Writes files and watches the counters of the volume: `counters disk.img`.

use std::error::Error;

use cairn::Volume;
use cairn::fs::File;

fn main() -> Result<(), Box<dyn Error>> {
    let image = std::env::args_os().nth(1).ok_or("usage: counters IMAGE")?;
    let volume = Volume::open_writable(image)?;
    let commits = || volume.filesystem().report().u64("journal.transactions").unwrap_or(0);
    let before = commits();
    for number in 0..10 {
        let path = format!("/counted {number}");
        volume.write(&path, "contents")?;
        File::open(&volume, &path)?.sync_all()?;
    }
    println!("10 files were made durable by {} transactions", commits() - before);
    println!("{}", serde_json::to_string_pretty(&volume.filesystem().report())?);
    volume.close()?;
    Ok(())
}
