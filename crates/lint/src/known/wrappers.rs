//! Types and methods that inference sees through.

/// Types that hold another and hand it out: seen through.
pub(crate) fn is_wrapper(name: &str) -> bool {
    const WRAPPERS: &[&str] = &[
        "Arc",
        "ArcSwap",
        "AsMut",
        "AsRef",
        "AssertUnwindSafe",
        "Borrow",
        "BorrowMut",
        "Box",
        "Cell",
        "Cow",
        "Deref",
        "DerefMut",
        "Future",
        "Into",
        "IntoIter",
        "IntoIterator",
        "Iterator",
        "Lazy",
        "LazyCell",
        "LazyLock",
        "ManuallyDrop",
        "Mutex",
        "MutexGuard",
        "Once",
        "OnceCell",
        "OnceLock",
        "Option",
        "OwnedMutexGuard",
        "Pin",
        "Rc",
        "Ref",
        "RefCell",
        "RefMut",
        "Result",
        "RwLock",
        "RwLockReadGuard",
        "RwLockWriteGuard",
        "Vec",
        "VecDeque",
        "Weak",
    ];
    WRAPPERS.binary_search(&name).is_ok()
}

/// Maps: their last argument is what one gets out.
pub(crate) fn is_map(name: &str) -> bool {
    ["BTreeMap", "DashMap", "HashMap", "IndexMap"].contains(&name)
}

/// Methods that lead from a wrapper, a builder or a reference to the thing itself.
pub(crate) fn keeps_type(method: &str) -> bool {
    const KEEPING: &[&str] = &[
        "as_deref",
        "as_deref_mut",
        "as_mut",
        "as_ref",
        "await",
        "blocking_lock",
        "borrow",
        "borrow_mut",
        "by_ref",
        "clone",
        "cloned",
        "context",
        "copied",
        "deref",
        "deref_mut",
        "entry",
        "expect",
        "first",
        "first_mut",
        "flatten",
        "get",
        "get_mut",
        "get_or_init",
        "get_or_insert_with",
        "handle",
        "insert",
        "into_inner",
        "into_iter",
        "iter",
        "iter_mut",
        "last",
        "last_mut",
        "load",
        "lock",
        "map_err",
        "next",
        "ok",
        "ok_or",
        "ok_or_else",
        "or_default",
        "or_insert",
        "or_insert_with",
        "pop",
        "pop_front",
        "read",
        "remove",
        "replace",
        "spawner",
        "take",
        "to_owned",
        "try_lock",
        "unwrap",
        "unwrap_or",
        "unwrap_or_default",
        "unwrap_or_else",
        "upgrade",
        "values",
        "values_mut",
        "with_context",
        "write",
    ];
    KEEPING.binary_search(&method).is_ok()
}

/// Methods whose closure receives what the receiver holds.
pub(crate) fn hands_over(method: &str) -> bool {
    const HANDING: &[&str] = &[
        "and_then",
        "filter",
        "filter_map",
        "flat_map",
        "for_each",
        "inspect",
        "is_some_and",
        "map",
        "map_or",
        "map_or_else",
        "with",
        "with_borrow",
        "with_borrow_mut",
    ];
    HANDING.binary_search(&method).is_ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn tables_are_sorted() {
        // Each entry finds itself only if the private tables are in order.
        for name in ["ArcSwap", "Arc", "Weak", "Mutex", "Option", "IntoIter", "Once", "OnceCell"] {
            assert!(super::is_wrapper(name), "{name}");
        }
        for name in ["as_deref", "clone", "get", "get_or_init", "handle", "write", "unwrap", "ok"] {
            assert!(super::keeps_type(name), "{name}");
        }
        for name in ["and_then", "for_each", "is_some_and", "map", "with_borrow_mut"] {
            assert!(super::hands_over(name), "{name}");
        }
    }
}
