//! Prints a file of a disk image: `read_file disk.img#2 /etc/hosts`.

use std::error::Error;
use std::io::Write;

use cairn::Volume;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(image), Some(path)) = (arguments.next(), arguments.next()) else {
        return Err("usage: read_file IMAGE PATH".into());
    };
    let volume = Volume::open(image)?;
    std::io::stdout().write_all(&volume.read(path)?)?;
    Ok(())
}
