//! Continues past damage: a call returns everything that can be read, and the first damage as its
//! error at the end.
//!
//! A call ends after `LIMIT` pieces of damage, so that a crafted volume cannot keep it busy.

/// Most pieces of damage that one call skips.
const LIMIT: u32 = 4096;

/// The damage that one call has skipped.
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
    /// Returns what was read, or `None` if it is damaged and skipped.
    ///
    /// # Errors
    /// The call has skipped too much damage and ends.
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

    /// Returns the result of the call.
    ///
    /// # Errors
    /// The first damage, or else the error of `answer`.
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
        assert_eq!(
            (damage.pass(Err::<(), _>(1)), damage.pass(Err::<(), _>(2))),
            (Ok(None), Ok(None))
        );
        assert_eq!(damage.end(Ok(())), Err(1));
        assert_eq!(PastDamage::<u32>::default().end(Ok(3)), Ok(3));
    }
}
