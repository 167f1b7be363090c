//! Copies deleted files out of an image, which is only read: `recover_deleted disk.img DIRECTORY`.

use std::error::Error;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use cairn::salvage::{Contents, Found, Loss, Receiver, Remains};
use cairn::{Copies, ImageSpec};

/// Writes what is found into a directory.
struct Into(PathBuf);

impl Into {
    fn write(&self, found: &Found, contents: &mut dyn Contents) -> std::io::Result<()> {
        // A path of the volume has no `..`, and here it is one name.
        let name = String::from_utf8_lossy(&found.path).replace('/', "_");
        let file = File::create_new(self.0.join(&name))?;
        file.set_len(found.size)?;
        let mut result = Ok(());
        let lost = contents.copy(&mut |offset, part| {
            result = file.write_all_at(part, offset);
            result.is_ok()
        });
        lost.iter().for_each(|what| eprintln!("{name}: {what}"));
        println!("{name}: {} bytes", found.size);
        result
    }
}

impl Receiver for Into {
    fn found(&mut self, found: &Found, contents: &mut dyn Contents) -> bool {
        let written = self.write(found, contents);
        written.inspect_err(|error| eprintln!("{}: {error}", found.path.escape_ascii())).is_ok()
    }

    fn linked(&mut self, _: &[u8], _: u64, _: &[u8]) -> bool {
        true
    }

    fn lost(&mut self, loss: Loss) -> bool {
        eprintln!("inode {}: {}", loss.ino, loss.what);
        true
    }

    fn progress(&mut self, _: &'static str, _: u64, _: u64) -> bool {
        true
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(image), Some(directory)) = (arguments.next(), arguments.next()) else {
        return Err("usage: recover_deleted IMAGE DIRECTORY".into());
    };
    let (_, mut volume) = cairn::rescue(&ImageSpec::parse(&image)?, &[], Copies::default())?;
    let mut to = Into(directory.into());
    for deleted in volume.deleted(&mut to) {
        let is_file = deleted.file.mode & 0o170_000 == 0o100_000;
        if !is_file || deleted.remains != Remains::Whole {
            continue;
        }
        let number = || format!("inode-{}", deleted.file.ino).into_bytes();
        let path = deleted.path.clone().unwrap_or_else(number);
        if !volume.restore(&deleted, &path, &mut to) {
            break;
        }
    }
    Ok(())
}
