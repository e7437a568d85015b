//! The walk over one file: scopes, test code and macros. The rules are the modules below.

mod attributes;
mod bind;
pub(crate) mod context;
mod deferred;
mod expected;
mod handlers;
mod idle;
mod mentions;
mod nested;
mod permit;
mod queue;
mod scopes;
mod spawn;
mod tasks;
mod walk;
pub(crate) mod yields;

use std::collections::{HashMap, HashSet};
use std::path::Path;

use proc_macro2::Span;
use syn::visit::Visit;

use crate::finding::{Finding, Rule};
use crate::infer::Ty;
use crate::names::collect::Seat;
use crate::names::{Index, ModuleId, Names, TypeFacts};
use crate::sources::Unit;

/// Checks one file, which sits at `seat` in the module tree.
pub(crate) fn check_file(index: &Index, seat: Seat, unit: &Unit) -> Vec<Finding> {
    let Unit { path, text, syntax, .. } = unit;
    let mut checker = Checker {
        index,
        file: seat.file,
        module: seat.module,
        blocks: Vec::new(),
        block_types: HashMap::new(),
        variables: vec![HashMap::new()],
        self_type: Ty::Unknown,
        task_depth: 0,
        in_task: false,
        has_context: false,
        handler_impl: None,
        submitted: HashSet::new(),
        handled: HashSet::new(),
        file_names: deferred::task_names(|visitor| visitor.visit_file(syntax)),
        submitted_functions: HashSet::new(),
        kept_functions: Vec::new(),
        kept_closures: HashMap::new(),
        returns: Ty::Unknown,
        found: Vec::new(),
    };
    checker.visit_file(syntax);
    checker.walk_submitted();
    let found = std::mem::take(&mut checker.found);
    let lines: Vec<&str> = if found.is_empty() { Vec::new() } else { text.lines().collect() };
    found.into_iter().map(|raw| raw.locate(path, &lines)).collect()
}

/// The state of the walk.
pub(crate) struct Checker<'i> {
    pub(crate) index: &'i Index,
    file: usize,
    pub(crate) module: ModuleId,
    /// Names of the blocks around, and of generics; innermost last.
    pub(crate) blocks: Vec<Names>,
    /// Types that blocks define: seldom, and then under names of their own.
    pub(crate) block_types: HashMap<String, TypeFacts>,
    variables: Vec<HashMap<String, Ty>>,
    /// What `Self` and `self` are.
    pub(crate) self_type: Ty,
    /// How many task closures and handlers are around.
    pub(crate) task_depth: usize,
    /// Whether a task closure is around; a handler is not one.
    pub(crate) in_task: bool,
    /// Whether the function around has a context: given, or of its type.
    has_context: bool,
    /// Inside `impl Handler for …`: the method that handles jobs.
    handler_impl: Option<&'static [&'static str]>,
    /// Variables that this function passes to something like a submit, as its task.
    submitted: HashSet<String>,
    /// Variables that this function registers as a handler.
    handled: HashSet<String>,
    /// The same as `submitted`, of the whole file.
    file_names: deferred::TaskNames,
    /// Functions of the file that a submit was given.
    submitted_functions: HashSet<String>,
    kept_functions: Vec<(String, deferred::KeptFunction)>,
    kept_closures: HashMap<String, deferred::KeptClosure>,
    /// What the function around returns; unknown inside closures.
    returns: Ty,
    found: Vec<Raw>,
}

/// A finding whose line is not yet read from the text.
struct Raw {
    rule: Rule,
    span: Span,
    message: String,
    help: &'static str,
}

impl Raw {
    fn locate(self, path: &Path, lines: &[&str]) -> Finding {
        let (start, end) = (self.span.start(), self.span.end());
        let source_line = lines.get(start.line.wrapping_sub(1)).copied().unwrap_or_default();
        let last = if end.line == start.line { end.column } else { source_line.chars().count() };
        Finding {
            rule: self.rule,
            path: path.to_owned(),
            line: start.line,
            column: start.column + 1,
            width: last.saturating_sub(start.column).max(1),
            message: self.message,
            help: self.help.to_owned(),
            source_line: source_line.to_owned(),
        }
    }
}

impl Checker<'_> {
    fn report(&mut self, rule: Rule, span: Span, message: String, help: &'static str) {
        self.found.push(Raw { rule, span, message, help });
    }

    /// The type of a variable, from the innermost scope that has it.
    pub(crate) fn variable(&self, name: &str) -> Option<&Ty> {
        self.variables.iter().rev().find_map(|scope| scope.get(name))
    }

    pub(crate) fn declare(&mut self, name: String, ty: Ty) {
        if let Some(scope) = self.variables.last_mut() {
            scope.insert(name, ty);
        }
    }

    /// Whether the innermost scope has a variable of this type.
    fn last_scope_has(&self, ty: &Ty) -> bool {
        self.variables.last().is_some_and(|scope| scope.values().any(|known| known == ty))
    }

    /// Runs `walk` in a scope of its own.
    fn scoped(&mut self, walk: impl FnOnce(&mut Self)) {
        self.variables.push(HashMap::new());
        walk(self);
        self.variables.pop();
    }

    /// Runs `walk` in a block that defines `names`.
    fn with_names(&mut self, names: Names, walk: impl FnOnce(&mut Self)) {
        if names.is_empty() {
            return walk(self);
        }
        self.blocks.push(names);
        walk(self);
        self.blocks.pop();
    }
}

/// The span from the start of one to the end of the other; they are in one file.
fn joined(first: Span, last: Span) -> Span {
    first.join(last).unwrap_or(first)
}
