//! What messages repeat: the pool, the target and the token of one are mostly those of another. Read
//! once and shared, they cost no memory and no second look at a URL.

use std::cell::RefCell;
use std::sync::Arc;

use sluicegate_dispatch::{AuthToken, BadTarget, Target};

/// How many of each kind a thread remembers.
const MOST: usize = 8;

thread_local! {
    static POOLS: RefCell<Recent<Arc<str>>> = const { RefCell::new(Recent::new()) };
    static TARGETS: RefCell<Recent<Target>> = const { RefCell::new(Recent::new()) };
    static TOKENS: RefCell<Recent<AuthToken>> = const { RefCell::new(Recent::new()) };
}

/// The last few values of one kind, each in the place of the oldest.
struct Recent<V> {
    values: Vec<V>,
    next: usize,
}

impl<V: Clone> Recent<V> {
    const fn new() -> Self {
        Self { values: Vec::new(), next: 0 }
    }

    fn find_or<E>(
        &mut self,
        is_it: impl Fn(&V) -> bool,
        make: impl FnOnce() -> Result<V, E>,
    ) -> Result<V, E> {
        if let Some(known) = self.values.iter().find(|value| is_it(value)) {
            return Ok(known.clone());
        }
        let value = make()?;
        if self.values.len() < MOST {
            self.values.push(value.clone());
        } else {
            self.values[self.next] = value.clone();
            self.next = (self.next + 1) % MOST;
        }
        Ok(value)
    }
}

pub(super) fn pool(code: &str) -> Arc<str> {
    let make = || Ok::<_, std::convert::Infallible>(code.into());
    let found = POOLS.with_borrow_mut(|recent| recent.find_or(|known| **known == *code, make));
    found.unwrap_or_else(|never| match never {})
}

pub(super) fn target(url: &str) -> Result<Target, BadTarget> {
    let is_it = |known: &Target| known.url() == url;
    TARGETS.with_borrow_mut(|recent| recent.find_or(is_it, || Target::parse(url)))
}

pub(super) fn token(token: &str) -> AuthToken {
    let is_it = |known: &AuthToken| known.expose() == token;
    let make = || Ok::<_, std::convert::Infallible>(AuthToken::new(token));
    let found = TOKENS.with_borrow_mut(|recent| recent.find_or(is_it, make));
    found.unwrap_or_else(|never| match never {})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_repeats_is_shared_and_what_does_not_is_forgotten() {
        let first = pool("A");
        assert!(Arc::ptr_eq(&first, &pool("A")));
        for number in 0..MOST {
            assert_eq!(*pool(&number.to_string()), *number.to_string());
        }
        assert!(!Arc::ptr_eq(&first, &pool("A")), "it was forgotten");
        assert_eq!(POOLS.with_borrow(|recent| recent.values.len()), MOST);
    }

    #[test]
    fn what_is_wrong_is_not_remembered() {
        assert_eq!(target("ftp://h/").unwrap_err(), BadTarget::Scheme);
        assert_eq!(target("ftp://h/").unwrap_err(), BadTarget::Scheme);
        assert_eq!(target("http://h/a").unwrap().url(), "http://h/a");
        assert_eq!(target("http://h/a").unwrap().authority(), "h");
    }
}
