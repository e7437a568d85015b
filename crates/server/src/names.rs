//! The names there are: what is misspelt is said so, with the name that was probably meant.

use std::sync::Arc;

use sluicegate_dispatch::{DEFAULT_POOL, Router};
use sluicegate_sources::nearest;

/// How many names are listed where none is near.
const MOST_LISTED: usize = 10;

/// Names in order.
#[derive(Debug)]
pub(crate) struct Names(Vec<Arc<str>>);

impl Names {
    /// The codes of all pools. The default pool is there, though it is made by its first message.
    pub(crate) fn of_pools(router: &Router) -> Self {
        let mut codes = router.pools();
        codes.push(DEFAULT_POOL.into());
        Self::new(codes)
    }

    fn new(mut names: Vec<Arc<str>>) -> Self {
        names.sort_unstable();
        names.dedup();
        Self(names)
    }

    /// What could be meant by a name; `None` if it is one of them.
    pub(crate) fn instead_of(&self, name: &str) -> Option<String> {
        if self.0.binary_search_by(|known| (**known).cmp(name)).is_ok() {
            return None;
        }
        if let Some(near) = nearest(name, self.0.iter().map(|name| &**name)) {
            return Some(format!("did you mean `{near}`?"));
        }
        let (listed, rest) = self.0.split_at(self.0.len().min(MOST_LISTED));
        let more =
            if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
        let listed: Vec<&str> = listed.iter().map(|name| &**name).collect();
        Some(format!("there are: {}{more}", listed.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_meant_or_some_are_listed() {
        let few = || Names::new(vec!["ORDERS".into(), "MAIL".into()]);
        let many = Names::new((10..30).map(|at| format!("POOL-{at}").into()).collect());
        let cases = [
            ("ORDERS", None),
            ("odrers", Some("did you mean `ORDERS`?")),
            ("x", Some("there are: MAIL, ORDERS")),
        ];
        for (name, wanted) in cases {
            assert_eq!(few().instead_of(name).as_deref(), wanted);
        }
        assert!(many.instead_of("x").is_some_and(|said| said.ends_with("POOL-19 and 10 more")));
    }
}
