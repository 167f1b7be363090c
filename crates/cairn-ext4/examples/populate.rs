//! Fills an ext4 image with a directory of the host: `populate DIRECTORY IMAGE [THREADS]`. With the
//! image `-` it only opens, reads and closes all files. `bench/build` measures both.

#[path = "../tests/populate/host.rs"]
mod host;

use std::error::Error;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_base::thread::spawn;
use cairn_block::file::{FileDevice, OpenOptions};
use cairn_ext4::mkfs::MkfsOptions;
use cairn_ext4::mkfs::populate::{Kind, Population, Source};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, image, rest @ ..] = arguments.as_slice() else {
        return Err("usage: populate DIRECTORY IMAGE|- [THREADS]".into());
    };
    let threads = rest.first().map_or(Ok(2), |text| text.parse())?;
    let tree = Arc::new(host::HostTree::scan(Path::new(directory))?);
    if image == "-" {
        return read_all(&tree, threads);
    }
    let runtime = Threads::new();
    let population = Population::new(tree, &MkfsOptions::default(), 1000, &*runtime)?;
    let size = population.required_bytes(16 << 20)?;
    let open = OpenOptions::create(size);
    let device = Arc::new(FileDevice::open(image, open)?);
    let made = population.write(device, threads, &*runtime)?;
    println!("{} blocks of {}, {} inodes", made.blocks, made.block_size, made.inodes);
    Ok(())
}

fn read_all(tree: &Arc<host::HostTree>, threads: usize) -> Result<(), Box<dyn Error>> {
    let readers = (0..threads)
        .map(|first| {
            let tree = tree.clone();
            spawn("reader", move || read(&tree, first, threads))
        })
        .collect::<Result<Vec<_>, _>>()?;
    let mut bytes = 0;
    for reader in readers {
        bytes += reader.join().map_err(|_| "a reader panicked")??;
    }
    println!("{bytes} bytes");
    Ok(())
}

/// Opens, reads and closes every `step`th file from `first` on.
fn read(tree: &host::HostTree, first: usize, step: usize) -> std::io::Result<u64> {
    let mut buffer = vec![0; 512 << 10];
    let mut bytes = 0;
    for id in (0..tree.count()).skip(first).step_by(step) {
        let Kind::Regular { size, .. } = tree.node(id).kind else { continue };
        let file = File::open(tree.path(id))?;
        for at in (0..size).step_by(buffer.len()) {
            bytes += file.read_at(&mut buffer, at)? as u64;
        }
    }
    Ok(bytes)
}
