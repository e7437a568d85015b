//! `nested-pool`: a task waits for nothing that needs the permits it holds itself.
//!
//! Inside a task closure or a handler, only a child group made right there may be submitted to: it
//! takes its permits by hand-over. A group from outside, a clone of one, and a child made outside
//! all wait for permits that the waiting task may be the one to hold.

use super::Checker;
use super::tasks::Submit;
use crate::finding::Rule;
use crate::infer::Ty;

impl Checker<'_> {
    pub(super) fn check_nested(&mut self, submit: &Submit<'_>) {
        if self.task_depth == 0 {
            return;
        }
        let message = match self.infer(submit.group) {
            Ty::Child(depth) if depth == self.task_depth => return,
            Ty::Child(_) => {
                format!("`{}` inside a task, to a child group made outside of it", submit.name)
            }
            _ => format!("`{}` inside a task or handler can wait for itself", submit.name),
        };
        let help = "submit to a child made here: `let child = group.child(\"name\"); \
                    child.submit(cx, …)`, or do the work in place";
        self.report(Rule::NestedPool, submit.span, message, help);
    }
}
