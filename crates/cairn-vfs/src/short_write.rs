//! Writes that end early. A call that has written something succeeds with its count.

/// Writes `len` bytes by calls of `piece`, which gets the number of bytes done and returns how many
/// it has written. Ends at the first that writes nothing or fails.
///
/// # Errors
/// That of the first piece. A later error only ends the write: the caller's next call gets it.
pub fn write_pieces<E>(
    len: usize,
    mut piece: impl FnMut(usize) -> Result<usize, E>,
) -> Result<usize, E> {
    let mut done = 0;
    while done < len {
        match piece(done) {
            Ok(0) => break,
            Ok(taken) => done += taken,
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_after_the_first_piece_ends_the_write_with_a_count() {
        let mut pieces = vec![Ok(3), Ok(4), Err("full")].into_iter();
        assert_eq!(write_pieces(10, |_| pieces.next().unwrap()), Ok(7));
        assert_eq!(write_pieces(10, |_| Err::<usize, _>("full")), Err("full"));
    }

    #[test]
    fn it_ends_when_all_is_written_or_a_piece_takes_nothing() {
        assert_eq!(write_pieces::<()>(10, |done| Ok((10 - done).min(4))), Ok(10));
        assert_eq!(write_pieces::<()>(10, |done| Ok(if done == 0 { 6 } else { 0 })), Ok(6));
        assert_eq!(write_pieces::<()>(0, |_| panic!("nothing is to be written")), Ok(0));
    }
}
