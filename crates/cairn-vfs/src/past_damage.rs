//! Going on past what is damaged: everything that can be read is given, and the first damage is the error at the end.
//!
//! Bounded: after `LIMIT` pieces of damage it ends, so that a crafted volume cannot keep a call busy with what is not there.

/// Pieces of damage that one call passes by.
const LIMIT: u32 = 4096;

/// What one call has passed by.
#[derive(Debug)]
pub struct PastDamage<E> {
    first: Option<E>,
    met: u32,
}

impl<E> Default for PastDamage<E> {
    fn default() -> Self {
        Self { first: None, met: 0 }
    }
}

impl<E> PastDamage<E> {
    /// What was read, or `None` for what is passed by.
    ///
    /// # Errors
    /// There was too much damage: nothing more is worth reading.
    pub fn pass<T>(&mut self, read: Result<T, E>) -> Result<Option<T>, E> {
        let error = match read {
            Ok(read) => return Ok(Some(read)),
            Err(error) => error,
        };
        self.met += 1;
        if self.met > LIMIT {
            return Err(self.first.take().unwrap_or(error));
        }
        self.first.get_or_insert(error);
        Ok(None)
    }

    /// The answer of the call: the first damage, if there was any.
    ///
    /// # Errors
    /// That damage, or the error of what ended the call.
    pub fn end<T>(self, answer: Result<T, E>) -> Result<T, E> {
        self.first.map_or(answer, Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_passed_by_up_to_a_limit_and_the_first_is_told() {
        let mut damage = PastDamage::default();
        assert_eq!(damage.pass(Ok::<_, u32>(7)), Ok(Some(7)));
        assert!((0..LIMIT).all(|n| damage.pass(Err::<(), _>(n)) == Ok(None)));
        assert_eq!(damage.pass(Err::<(), _>(LIMIT)), Err(0));
        let mut damage = PastDamage::default();
        assert_eq!((damage.pass(Err::<(), _>(1)), damage.pass(Err::<(), _>(2))), (Ok(None), Ok(None)));
        assert_eq!(damage.end(Ok(())), Err(1));
        assert_eq!(PastDamage::<u32>::default().end(Ok(3)), Ok(3));
    }
}
