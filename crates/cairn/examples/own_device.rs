//! A volume in a vector: a device of the program's own.

use std::error::Error;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cairn::{Format, MkfsOptions, OpenOptions, Storage, StorageDevice, Volume};

struct Memory(Mutex<Vec<u8>>);

impl Memory {
    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Storage for Memory {
    fn size(&self) -> u64 {
        self.bytes().len() as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let bytes = self.bytes();
        let from = bytes.get(offset as usize..).and_then(|rest| rest.get(..buf.len()));
        buf.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut bytes = self.bytes();
        let to = bytes.get_mut(offset as usize..).and_then(|rest| rest.get_mut(..data.len()));
        to.ok_or(io::ErrorKind::UnexpectedEof)?.copy_from_slice(data);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let device = Arc::new(StorageDevice::new(Memory(Mutex::new(vec![0; 64 << 20]))));
    cairn::mkfs_on(device.clone(), &MkfsOptions::new(Format::F2fs))?;
    let volume = Volume::on(device, &OpenOptions::default())?;
    volume.write("/file", "stored in a vector")?;
    println!("{}", volume.read_to_string("/file")?);
    volume.close()?;
    Ok(())
}
