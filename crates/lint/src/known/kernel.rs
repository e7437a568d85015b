//! The kernel's types by name, for code that imports them and for the kernel itself.

use crate::infer::Ty;

/// What a type of the kernel is to the rules.
pub(crate) fn kernel_type(name: &str) -> Option<Ty> {
    match name {
        "TaskGroup" => Some(Ty::TaskGroup),
        "Context" => Some(Ty::Context),
        "Permits" => Some(Ty::Semaphore),
        "Permit" | "OwnedPermit" => Some(Ty::Permit),
        "Sluice" => Some(Ty::Sluice),
        "Admitted" => Some(Ty::Admitted),
        "Turn" | "KeyHold" => Some(Ty::Turn),
        _ => None,
    }
}

/// The crate of the kernel and the one that re-exports it. The project's other crates have a
/// `Turn` or a `Permit` of their own.
pub(crate) fn is_kernel_crate(name: &str) -> bool {
    matches!(name, "sluicegate" | "sluicegate_tasks")
}
