//! A stand-in for a CLI agent: it does what its prompt says, good or bad. See `help.txt`.

mod act;
mod children;
mod directive;
mod output;
mod session;
mod show;

use std::io::{self, IsTerminal, Read};
use std::process::ExitCode;
use std::time::Instant;

use act::{Answer, act};
use output::Output;
use serde_json::Value;
use session::Session;

/// What it was started with.
#[derive(Default)]
struct Flags {
    input_is_stream: bool,
    output_is_stream: bool,
    replays: bool,
    session: Option<String>,
    first: String,
    prompt: Option<String>,
}

/// The flags of the Claude CLI that have a value and mean nothing here.
const VALUED: &[&str] = &[
    "--model",
    "--append-system-prompt",
    "--system-prompt",
    "--permission-mode",
    "--permission-prompt-tool",
    "--allowedTools",
    "--disallowedTools",
    "--mcp-config",
    "--max-turns",
    "--settings",
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(code) = children::run_if_asked(&arguments) {
        return code;
    }
    if arguments.iter().any(|argument| argument == "--help" || argument == "-h") {
        return match io::Write::write_all(&mut io::stdout(), include_bytes!("help.txt")) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    match run(Flags::of(arguments)) {
        Ok(code) => code,
        // Whoever read the output is gone.
        Err(error) => {
            eprintln!("fake-agent: {error}");
            ExitCode::from(74)
        }
    }
}

impl Flags {
    fn of(arguments: Vec<String>) -> Self {
        let mut flags = Self::default();
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--input-format" => {
                    flags.input_is_stream = arguments.next().as_deref() == Some("stream-json");
                }
                "--output-format" => {
                    flags.output_is_stream = arguments.next().as_deref() == Some("stream-json");
                }
                "--session-id" | "--resume" | "-r" => flags.session = arguments.next(),
                "--replay-user-messages" => flags.replays = true,
                "--do" => flags.first = arguments.next().unwrap_or_default(),
                known if VALUED.contains(&known) => drop(arguments.next()),
                flag if flag.starts_with('-') => {}
                _ => flags.prompt = Some(argument),
            }
        }
        flags
    }
}

fn run(flags: Flags) -> io::Result<ExitCode> {
    let session = Session::new(flags.session.as_deref());
    let mut output = Output::new(flags.output_is_stream, session.id());
    // What is asked for before anything is read is done, not answered.
    act(&directive::parse(&flags.first), &mut output)?;
    if flags.input_is_stream {
        return stream(&session, &mut output, flags.replays);
    }
    let prompt = match flags.prompt {
        Some(prompt) => prompt,
        None if io::stdin().is_terminal() => String::new(),
        None => {
            let mut prompt = String::new();
            io::stdin().read_to_string(&mut prompt)?;
            prompt
        }
    };
    output.begin()?;
    let answer = turn(&session, &prompt, &mut output)?;
    if answer.exits_late {
        children::wait_for_ever();
    }
    Ok(if answer.is_error { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Answers each line, until there are no more.
fn stream(session: &Session, output: &mut Output, replays: bool) -> io::Result<ExitCode> {
    output.begin()?;
    let mut line = String::new();
    // Not locked for longer: a directive reads from it too.
    while io::stdin().read_line(&mut line)? > 0 {
        let said = std::mem::take(&mut line);
        let Ok(said) = serde_json::from_str::<Value>(&said) else {
            eprintln!("fake-agent: a line that is no JSON");
            return Ok(ExitCode::from(2));
        };
        if said["type"] != "user" {
            continue;
        }
        if replays {
            output.replay(said.clone())?;
        }
        turn(session, &text(&said), output)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The text of a user's line: a string, or the parts that are text.
fn text(said: &Value) -> String {
    let content = &said["message"]["content"];
    match content {
        Value::Array(parts) => {
            parts.iter().filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join("\n")
        }
        other => other.as_str().unwrap_or_default().to_owned(),
    }
}

fn turn(session: &Session, prompt: &str, output: &mut Output) -> io::Result<Answer> {
    let since = Instant::now();
    session.note("begin", prompt)?;
    let begun = session.begin()?;
    let answer = match &begun {
        Some(_) => act(&directive::parse(prompt), output)?,
        None => {
            Answer { is_error: true, text: "the session is in use".into(), ..Answer::default() }
        }
    };
    let turns = begun.as_ref().map_or(0, session::Turn::number);
    // The turn is over when its answer is read, which may be before the next line here.
    drop(begun);
    session.note("end", prompt)?;
    output.answer(&answer, turns, since.elapsed())?;
    Ok(answer)
}
