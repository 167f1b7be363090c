use super::*;
use crate::Request;
use crate::{BlockDeviceExt, ErrorKind, IoBuf};

#[test]
fn what_is_written_across_chunks_is_read_back_and_the_rest_is_zero() {
    let device = MemoryDevice::new(10 * CHUNK as u64);
    let data: Vec<u8> = (0..3 * CHUNK).map(|n| (n % 251) as u8 + 1).collect();
    device.write_at(100, data.clone()).unwrap();
    let all = device.read_at(0, 10 * CHUNK).unwrap();
    assert_eq!(&all[100..100 + data.len()], data);
    assert!(all[..100].iter().chain(&all[100 + data.len()..]).all(|byte| *byte == 0));
    assert_eq!(device.allocated(), 4 * CHUNK as u64);
}

#[test]
fn a_fork_and_its_origin_do_not_see_each_others_writes() {
    let device = MemoryDevice::from_image(&[1; 2 * CHUNK]);
    let fork = device.fork();
    fork.write_at(10, vec![2; 5]).unwrap();
    device.write_at(10, vec![3; 5]).unwrap();
    assert_eq!(&fork.read_at(9, 7).unwrap()[..], [1, 2, 2, 2, 2, 2, 1]);
    assert_eq!(&device.read_at(9, 7).unwrap()[..], [1, 3, 3, 3, 3, 3, 1]);
}

#[test]
fn discarded_chunks_free_their_memory_and_edges_are_zeroed() {
    let device = MemoryDevice::from_image(&[9; 3 * CHUNK]);
    device.discard(10, 2 * CHUNK as u64).unwrap();
    assert_eq!(device.allocated(), 2 * CHUNK as u64);
    assert_eq!(&device.read_at(9, 2).unwrap()[..], [9, 0]);
    assert_eq!(&device.read_at(2 * CHUNK as u64 + 9, 2).unwrap()[..], [0, 9]);
}

#[test]
fn a_batch_with_a_bad_request_changes_nothing() {
    let device = MemoryDevice::new(4096);
    let good = Request::Write { offset: 0, bufs: vec![vec![1; 8].into(), vec![2; 8].into()] };
    let bad = Request::Read { offset: 4090, buf: IoBuf::zeroed(8) };
    let error =
        device.submit(Batch { requests: vec![good, bad], ..Batch::default() }).wait().unwrap_err();
    assert_eq!((error.kind, error.range), (ErrorKind::OutOfRange, Some((4090, 8))));
    assert_eq!(&device.read_at(0, 16).unwrap()[..], [0; 16]);
    let error = device.read_at(u64::MAX, 2).unwrap_err();
    assert_eq!(error.kind, ErrorKind::OutOfRange);
}

#[test]
fn requests_off_the_logical_block_are_refused() {
    let geometry = Geometry { logical_block: 512, ..MemoryDevice::new(4096).geometry() };
    let device = MemoryDevice::with_geometry(geometry);
    assert_eq!(device.read_at(1, 512).unwrap_err().kind, ErrorKind::OutOfRange);
    assert_eq!(device.write_at(512, vec![0; 511]).unwrap_err().kind, ErrorKind::OutOfRange);
    device.write_at(512, vec![7; 512]).unwrap();
}

#[test]
fn threads_write_their_own_ranges_at_once() {
    let device = MemoryDevice::new(8 * CHUNK as u64);
    std::thread::scope(|scope| {
        for thread in 0..8_u8 {
            let device = &device;
            scope.spawn(move || {
                for block in (u64::from(thread)..1024).step_by(8) {
                    device.write_at(block * 128, vec![thread + 1; 128]).unwrap();
                }
            });
        }
    });
    let all = device.read_at(0, 8 * CHUNK).unwrap();
    for (block, bytes) in all.chunks(128).enumerate() {
        assert_eq!(bytes, [(block % 8) as u8 + 1; 128]);
    }
}
