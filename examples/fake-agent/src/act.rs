//! Doing what a prompt asks for.

use std::io::{self, BufRead, Write};
use std::process::exit;
use std::str::FromStr;
use std::thread::sleep;

use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigSet, Signal, raise};

use crate::children;
use crate::directive::Directive;
use crate::output::Output;
use crate::show::show;

/// What is answered.
#[derive(Default)]
pub(crate) struct Answer {
    pub(crate) text: String,
    pub(crate) is_error: bool,
    pub(crate) is_no_json: bool,
    pub(crate) is_partial: bool,
    pub(crate) exits_late: bool,
}

/// Does what is asked for, one after the other.
pub(crate) fn act(directives: &[Directive], output: &mut Output) -> io::Result<Answer> {
    let mut answer = Answer::default();
    for directive in directives {
        step(directive, &mut answer, output)?;
    }
    Ok(answer)
}

fn step(directive: &Directive, answer: &mut Answer, output: &mut Output) -> io::Result<()> {
    match directive {
        Directive::Say(word) => say(answer, word),
        Directive::Show(what) => {
            let shown = show(what)?;
            say(answer, &shown);
        }
        Directive::Sleep(time) => sleep(*time),
        Directive::Hang => children::wait_for_ever(),
        Directive::IgnoreTerm => ignore_term()?,
        Directive::Exit(code) => exit((*code).into()),
        Directive::Signal(name) => end_by(name)?,
        Directive::Fork(count) => children::start(*count)?,
        Directive::Daemonize => children::daemonize()?,
        Directive::KeepForking => children::keep_forking()?,
        Directive::Flood(Some(size)) => say(answer, &"x".repeat(*size)),
        Directive::Flood(None) => output.flood()?,
        Directive::FloodErrors(size) => flood_errors(*size)?,
        Directive::Errors(word) => writeln!(io::stderr(), "{word}")?,
        Directive::Leak(size) => children::keep(vec![1; *size]),
        Directive::NoJson => answer.is_no_json = true,
        Directive::Error => answer.is_error = true,
        Directive::Partial => answer.is_partial = true,
        Directive::LateExit => answer.exits_late = true,
        Directive::Notice => output.line("error", &[("message", "Reconnecting... 1/5")])?,
        Directive::Unknown => output.line("weather", &[("forecast", "rain")])?,
        Directive::Ask => {
            output.ask()?;
            io::stdin().lock().read_line(&mut String::new())?;
        }
    }
    Ok(())
}

fn say(answer: &mut Answer, words: &str) {
    if !answer.text.is_empty() {
        answer.text.push(' ');
    }
    answer.text.push_str(words);
}

/// Children inherit it.
fn ignore_term() -> io::Result<()> {
    let mut blocked = SigSet::empty();
    blocked.add(Signal::SIGTERM);
    Ok(blocked.thread_block()?)
}

fn end_by(name: &str) -> io::Result<()> {
    let signal = Signal::from_str(&format!("SIG{name}"))?;
    // Nobody wants a file of it.
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    // The first SIGSEGV only removes the handler that finds overflows of the stack.
    for _ in 0..2 {
        raise(signal)?;
    }
    children::wait_for_ever()
}

fn flood_errors(size: usize) -> io::Result<()> {
    let line = [&[b'e'; 1023][..], b"\n"].concat();
    let mut errors = io::stderr().lock();
    for _ in 0..size.div_ceil(line.len()) {
        errors.write_all(&line)?;
    }
    Ok(())
}
