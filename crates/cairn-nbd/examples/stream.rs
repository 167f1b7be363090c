//! Writes and reads an export in a stream, and prints MiB a second: `stream URI MIB CONNECTIONS`.

use std::collections::VecDeque;
use std::time::Instant;

use cairn_block::{Batch, BlockDevice, BlockDeviceExt, Bytes, Durability, IoBuf, Request};
use cairn_nbd::{Address, Client, ConnectOptions};

const MIB: u64 = 1 << 20;
/// Requests under way.
const DEPTH: usize = 16;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().collect();
    let [_, uri, mib, connections] = &words[..] else { return Err("URI MIB CONNECTIONS".into()) };
    let (mib, connections) = (mib.parse::<u64>()?, connections.parse()?);
    let options = ConnectOptions { write: true, connections, ..ConnectOptions::default() };
    let client = Client::connect(&Address::parse(uri)?, &options)?;
    let data = Bytes::from(vec![7; MIB as usize]);
    let mut free: Vec<IoBuf> = Vec::new();
    for write in [true, false, true, false] {
        let start = Instant::now();
        let mut waiting = VecDeque::new();
        for at in 0..mib {
            let offset = at * MIB;
            let request = match write {
                true => Request::Write { offset, bufs: vec![data.clone()] },
                false => {
                    let buf = free.pop().unwrap_or_else(|| IoBuf::zeroed(MIB as usize));
                    Request::Read { offset, buf }
                }
            };
            let durability = Durability::default();
            waiting.push_back(client.submit(Batch { requests: vec![request], durability }));
            if waiting.len() == DEPTH
                && let Some(first) = waiting.pop_front()
            {
                free.extend(first.wait()?);
            }
        }
        for last in waiting {
            free.extend(last.wait()?);
        }
        if write {
            client.flush()?;
        }
        let rate = mib as f64 / start.elapsed().as_secs_f64();
        println!("{} {rate:.0} MiB/s", if write { "write" } else { "read" });
    }
    let start = Instant::now();
    for at in 0..5000 {
        let durability = Durability { preflush: true, fua: true };
        client.write_durable(at * 4096, data.slice(..4096), durability)?;
    }
    println!("preflush and fua {:.1} us", start.elapsed().as_secs_f64() * 1e6 / 5000.0);
    Ok(())
}
