//! Makes an image with a small root: `build_image root.img`.

use std::error::Error;

use cairn::{Format, ImageSpec, MkfsOptions, Volume};

fn main() -> Result<(), Box<dyn Error>> {
    let image = std::env::args_os().nth(1).ok_or("usage: build_image IMAGE")?;
    let options = MkfsOptions { size: Some(64 << 20), ..MkfsOptions::new(Format::Ext4) };
    cairn::mkfs(&ImageSpec::parse(&image)?, &options)?;

    let volume = Volume::open_writable(&image)?;
    volume.create_dir_all("/etc")?;
    volume.create_dir_all("/usr/bin")?;
    volume.symlink("usr/bin", "/bin")?;
    volume.write("/etc/hostname", "cairn\n")?;
    volume.write("/usr/bin/hello", "#!/bin/sh\necho hello\n")?;
    volume.set_permissions("/usr/bin/hello", 0o755)?;
    volume.write("/etc/shadow", "")?;
    volume.set_permissions("/etc/shadow", 0o640)?;
    volume.set_owner("/etc/shadow", 0, 42)?;
    volume.close()?;
    Ok(())
}
