//! Joins completions: a batch that was divided is complete when all its parts are.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::IoBuf;
use crate::device::{Completer, Completion};
use crate::error::Result;

struct Joined {
    left: usize,
    parts: Vec<Result<Vec<IoBuf>>>,
    completer: Option<Completer>,
}

/// Gives the parts' buffers one after the other, or the first part's error, when every part is
/// done.
pub(crate) fn join(mut parts: Vec<Completion>) -> Completion {
    match parts.len() {
        0 => return Completion::ready(Ok(Vec::new())),
        1 => return parts.remove(0),
        _ => {}
    }
    let (completion, completer) = Completion::pending();
    let outcomes = parts.iter().map(|_| Ok(Vec::new())).collect();
    let joined = Arc::new(Mutex::new(Joined {
        left: parts.len(),
        parts: outcomes,
        completer: Some(completer),
    }));
    for (index, part) in parts.into_iter().enumerate() {
        let joined = joined.clone();
        part.then(move |outcome| {
            let mut joined = joined.lock();
            joined.parts[index] = outcome;
            joined.left -= 1;
            if joined.left > 0 {
                return;
            }
            let parts = std::mem::take(&mut joined.parts);
            let completer = joined.completer.take();
            drop(joined);
            let all: Result<Vec<Vec<IoBuf>>> = parts.into_iter().collect();
            completer
                .expect("the last part comes once")
                .complete(all.map(|bufs| bufs.into_iter().flatten().collect()));
        });
    }
    completion
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Error, ErrorKind, Operation};

    #[test]
    fn buffers_keep_the_order_of_their_parts() {
        let (late, completer) = Completion::pending();
        let buf = |byte| vec![IoBuf::copy_from(&[byte])];
        let joined =
            join(vec![late, Completion::ready(Ok(buf(2))), Completion::ready(Ok(Vec::new()))]);
        completer.complete(Ok(buf(1)));
        let bytes: Vec<u8> = joined.wait().unwrap().iter().map(|buf| buf[0]).collect();
        assert_eq!(bytes, [1, 2]);
    }

    #[test]
    fn an_error_waits_for_the_other_parts() {
        let (late, completer) = Completion::pending();
        let failed = Completion::ready(Err(Error::new(ErrorKind::Io, Operation::Write, "no")));
        let joined = join(vec![failed, late]);
        let waiter = std::thread::spawn(|| joined.wait().unwrap_err().kind);
        completer.complete(Ok(Vec::new()));
        assert_eq!(waiter.join().unwrap(), ErrorKind::Io);
    }
}
