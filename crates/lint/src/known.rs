//! The tables of what is forbidden, by its real name.
//!
//! Everything here is a path from the crate's name down. `core` and `alloc` are written `std`.

mod kernel;
mod queues;
mod wrappers;

pub(crate) use self::kernel::{is_kernel_crate, kernel_type};
pub(crate) use self::queues::{is_bounded, is_unbounded};
pub(crate) use self::wrappers::{hands_over, is_map, is_wrapper, keeps_type};

use crate::fragments::METAVARIABLE;
use crate::infer::Ty;

/// Functions and methods that start a task or a thread, whatever runtime they belong to.
const SPAWNS: &[&str] = &[
    "spawn",
    "spawn_blocking",
    "spawn_blocking_on",
    "spawn_broadcast",
    "spawn_fifo",
    "spawn_local",
    "spawn_local_obj",
    "spawn_local_on",
    "spawn_local_scoped",
    "spawn_local_with_handle",
    "spawn_obj",
    "spawn_ok",
    "spawn_on",
    "spawn_pinned",
    "spawn_pinned_by_idx",
    "spawn_scoped",
    "spawn_unchecked",
    "spawn_with_handle",
    "unblock",
];

/// Method names that are a spawn on any receiver: no other kind of thing has them.
const UNMISTAKABLE: &[&str] = &[
    "spawn_blocking",
    "spawn_blocking_on",
    "spawn_fifo",
    "spawn_local",
    "spawn_local_on",
    "spawn_on",
    "spawn_pinned",
    "spawn_scoped",
];

/// Methods that start work on a spawner only: elsewhere the words mean something else.
const STARTS: &[&str] = &["broadcast", "execute", "extend", "from_iter", "install"];

/// What spreads work over rayon's threads, and has these names nowhere else.
const PARALLEL: &[&str] = &[
    "into_par_iter",
    "par_bridge",
    "par_bytes",
    "par_char_indices",
    "par_chars",
    "par_chunk_by",
    "par_chunk_by_mut",
    "par_chunks",
    "par_chunks_exact",
    "par_chunks_exact_mut",
    "par_chunks_mut",
    "par_drain",
    "par_encode_utf16",
    "par_extend",
    "par_iter",
    "par_iter_mut",
    "par_lines",
    "par_match_indices",
    "par_matches",
    "par_rchunks",
    "par_rchunks_exact",
    "par_rchunks_exact_mut",
    "par_rchunks_mut",
    "par_sort",
    "par_sort_by",
    "par_sort_by_cached_key",
    "par_sort_by_key",
    "par_sort_unstable",
    "par_sort_unstable_by",
    "par_sort_unstable_by_key",
    "par_split",
    "par_split_ascii_whitespace",
    "par_split_inclusive",
    "par_split_inclusive_mut",
    "par_split_mut",
    "par_split_terminator",
    "par_split_whitespace",
    "par_windows",
];

/// rayon's functions that run their arguments on its threads.
const FORKS: &[&str] = &[
    "broadcast",
    "join",
    "join_context",
    "split",
    "walk_tree",
    "walk_tree_postfix",
    "walk_tree_prefix",
];

/// Where the spawns live. A process is not a task: see [`is_process`].
const RUNTIMES: &[&[&str]] = &[
    &["actix"],
    &["actix_rt"],
    &["actix_web", "rt"],
    &["async_executor"],
    &["async_global_executor"],
    &["async_std"],
    &["blocking"],
    &["crossbeam"],
    &["crossbeam_utils"],
    &["futures"],
    &["futures_executor"],
    &["futures_util"],
    &["glommio"],
    &["hyper_util", "rt"],
    &["leptos"],
    &["monoio"],
    &["rayon"],
    &["rayon_core"],
    &["scheduled_thread_pool"],
    &["smol"],
    &["std", "thread"],
    &["tauri", "async_runtime"],
    &["threadpool"],
    &["tokio"],
    &["tokio_uring"],
    &["tokio_util"],
    &["wasm_bindgen_futures"],
    &["yew", "platform"],
];

/// Types that start tasks or threads by a method.
const SPAWNERS: &[&str] = &[
    "Arbiter",
    "ArbiterHandle",
    "Executor",
    "Handle",
    "JoinMap",
    "JoinQueue",
    "JoinSet",
    "LocalExecutor",
    "LocalPoolHandle",
    "LocalRuntime",
    "LocalSet",
    "LocalSpawner",
    "Runtime",
    "Scope",
    "ScheduledThreadPool",
    "ScopeFifo",
    "StaticExecutor",
    "TaskTracker",
    "ThreadPool",
    "TokioExecutor",
];

/// Spawners so well known that the bare name will do when an import cannot be followed.
const FAMOUS: &[&str] = &["JoinMap", "JoinSet", "LocalSet", "TaskTracker"];

/// Functions that hand a scope, which spawns, to a closure.
const SCOPES: &[&str] = &["in_place_scope", "in_place_scope_fifo", "scope", "scope_fifo"];

pub(crate) fn is_spawn_name(name: &str) -> bool {
    SPAWNS.binary_search(&name).is_ok()
}

pub(crate) fn is_unmistakable_spawn(name: &str) -> bool {
    UNMISTAKABLE.binary_search(&name).is_ok()
}

fn in_runtime(path: &[String]) -> bool {
    RUNTIMES.iter().any(|runtime| starts_with(path, runtime)) && !is_process(path)
}

/// `std::process`, `tokio::process`, `smol::process`, …: children have an exit code, not a group.
fn is_process(path: &[String]) -> bool {
    path.iter().any(|segment| segment == "process")
}

fn starts_with(path: &[String], prefix: &[&str]) -> bool {
    let same = |(segment, wanted): (&String, &&str)| {
        segment == wanted || (*wanted == "std" && segment == "core")
    };
    path.len() > prefix.len() && path.iter().zip(prefix).all(same)
}

pub(crate) fn is_spawn(path: &[String]) -> bool {
    let Some((name, owner)) = path.split_last() else {
        return false;
    };
    // `$rt::spawn`: the runtime is a macro's argument.
    let given = owner.first().is_some_and(|first| first.starts_with(METAVARIABLE));
    (in_runtime(path) || given) && is_spawn_name(name) || is_parallel(path)
}

/// `rayon::join`, `IntoParallelIterator::into_par_iter`
fn is_parallel(path: &[String]) -> bool {
    let of_rayon = path.first().is_some_and(|first| first == "rayon" || first == "rayon_core");
    let named = |name: &String| FORKS.contains(&name.as_str()) || is_parallel_name(name);
    of_rayon && path.last().is_some_and(named)
}

/// Methods that spread work over threads, whatever they are called on.
pub(crate) fn is_parallel_name(name: &str) -> bool {
    PARALLEL.binary_search(&name).is_ok()
}

/// Whether the method of a spawner starts work; `arguments` without the spawner itself.
pub(crate) fn starts_on_spawner(name: &str, arguments: usize) -> bool {
    is_spawn_name(name) || STARTS.contains(&name) || (name == "join" && arguments == 2)
}

pub(crate) fn is_scope(path: &[String]) -> bool {
    in_runtime(path) && path.last().is_some_and(|name| SCOPES.contains(&name.as_str()))
}

/// Whether a name is that of a crate in the tables.
pub(crate) fn is_crate(name: &str) -> bool {
    name == "core"
        || is_kernel(name)
        || queues::is_queue_crate(name)
        || RUNTIMES.iter().any(|runtime| runtime[0] == name)
}

/// The crates of this project.
pub(crate) fn is_kernel(name: &str) -> bool {
    name.starts_with("sluicegate")
}

/// `mem::forget` and `ManuallyDrop::new`, under `std` or `core`.
pub(crate) fn is_forget(path: &[String]) -> bool {
    let tail: Vec<&str> = path.iter().skip(1).map(String::as_str).collect();
    is_std(path) && matches!(tail[..], ["mem", "forget"] | ["mem", "ManuallyDrop", "new"])
}

fn is_std(path: &[String]) -> bool {
    path.first().is_some_and(|first| ["std", "core", "alloc"].contains(&first.as_str()))
}

/// Whether a path found through a foreign glob import means something to a rule.
pub(crate) fn is_known(path: &[String]) -> bool {
    let parent = &path[..path.len().saturating_sub(1)];
    is_spawn(path)
        || is_scope(path)
        || is_forget(path)
        || is_unbounded(path)
        || is_bounded(path)
        || !matches!(type_of(path), Ty::Foreign | Ty::Framework)
        || !matches!(type_of(parent), Ty::Foreign | Ty::Framework)
}

/// What kind of thing a foreign type is.
pub(crate) fn type_of(path: &[String]) -> Ty {
    let Some(name) = path.last().map(String::as_str) else {
        return Ty::Foreign;
    };
    let krate = path[0].as_str();
    let ours = is_kernel(krate);
    match name {
        "Command" | "CommandBuilder" | "AsyncCommand" => Ty::Command,
        "Builder" if starts_with(path, &["tokio", "runtime"]) => Ty::SpawnerBuilder,
        "Builder" if krate == "threadpool" || krate == "scheduled_thread_pool" => {
            Ty::SpawnerBuilder
        }
        "ThreadPoolBuilder" if in_runtime(path) => Ty::SpawnerBuilder,
        "Builder" if in_runtime(path) => Ty::Spawner,
        _ if in_runtime(path) && SPAWNERS.contains(&name) => Ty::Spawner,
        _ if queues::is_endless(path) => Ty::Queue,
        "TaskGroup" => Ty::TaskGroup,
        "Context" if ours => Ty::Context,
        _ if is_kernel_crate(krate) => kernel_type(name).unwrap_or(Ty::Foreign),
        "Permits" | "Semaphore" if ours || krate != "std" => Ty::Semaphore,
        "Permit" | "OwnedPermit" if ours => Ty::Permit,
        "SemaphorePermit" | "OwnedSemaphorePermit" | "SemaphoreGuard" | "SemaphoreGuardArc" => {
            Ty::Permit
        }
        _ if is_framework(krate) => Ty::Framework,
        _ => Ty::Foreign,
    }
}

/// Frameworks whose handlers answer requests or messages of actors, and whose executors run
/// futures: none of them holds a permit of a pool.
pub(crate) fn is_framework(name: &str) -> bool {
    const FRAMEWORKS: &[&str] = &[
        "actix",
        "actix_web",
        "axum",
        "gotham",
        "hyper",
        "hyper_util",
        "iced",
        "loco_rs",
        "ntex",
        "poem",
        "poem_openapi",
        "rocket",
        "salvo",
        "salvo_core",
        "sqlx",
        "thruster",
        "tide",
        "tonic",
        "tower",
        "trillium",
        "viz",
        "volo",
        "warp",
        "xitca_web",
    ];
    FRAMEWORKS.contains(&name)
}

/// What kind of thing a type is whose name could not be followed.
pub(crate) fn type_by_name(name: &str) -> Option<Ty> {
    match name {
        "Command" => Some(Ty::Command),
        "TaskGroup" => Some(Ty::TaskGroup),
        "Context" => Some(Ty::Context),
        "Semaphore" => Some(Ty::Semaphore),
        "OwnedPermit" | "SemaphorePermit" | "OwnedSemaphorePermit" => Some(Ty::Permit),
        "Sluice" => Some(Ty::Sluice),
        "SegQueue" => Some(Ty::Queue),
        _ if FAMOUS.contains(&name) => Some(Ty::Spawner),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn tables_are_sorted() {
        assert!(super::SPAWNS.is_sorted() && super::UNMISTAKABLE.is_sorted());
        assert!(super::PARALLEL.is_sorted());
    }
}
