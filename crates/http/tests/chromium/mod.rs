//! Headless Chromium by the DevTools protocol over two pipes.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// One page. Ends when dropped.
pub struct Browser {
    child: Child,
    commands: File,
    messages: BufReader<File>,
    session: Option<String>,
    next: u64,
    loaded: bool,
    /// Console errors and warnings, blocked and missing resources.
    pub complaints: Vec<String>,
    _dir: TempDir,
}

impl Browser {
    /// `None`: no Chromium.
    pub fn start() -> Option<Browser> {
        if !Command::new("chromium").arg("--version").output().is_ok_and(|version| version.status.success()) {
            println!("skipped: chromium is not installed");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        for pipe in ["commands", "messages"] {
            mknodat(CWD, dir.path().join(pipe), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        }
        let run = "exec chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run \
                   --hide-scrollbars --remote-debugging-pipe --user-data-dir=\"$PWD\" 3<commands 4>messages";
        let child = Command::new("sh")
            .args(["-c", run])
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // The order in which the shell opens the other ends.
        let commands = File::options().write(true).open(dir.path().join("commands")).unwrap();
        let messages = BufReader::new(File::open(dir.path().join("messages")).unwrap());
        let complaints = Vec::new();
        let mut browser = Browser {
            child,
            commands,
            messages,
            session: None,
            next: 0,
            loaded: false,
            complaints,
            _dir: dir,
        };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}))["targetId"].take();
        let session = browser.call("Target.attachToTarget", json!({"targetId": target, "flatten": true}));
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let id = self.next;
        let mut command = json!({"id": id, "method": method, "params": params});
        if let Some(session) = &self.session {
            command["sessionId"] = json!(session);
        }
        write!(self.commands, "{command}\0").unwrap();
        loop {
            let mut message = self.message();
            if message["id"] == id {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].take();
            }
        }
    }

    /// Color scheme, `light` or `dark`, and width.
    pub fn show(&mut self, scheme: &str, width: u32) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", json!({"features": features}));
        let size = json!({"width": width, "height": 760, "deviceScaleFactor": 1, "mobile": width < 600});
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    pub fn open(&mut self, url: &str) {
        self.loaded = false;
        self.call("Page.navigate", json!({"url": url}));
        self.wait_for_load();
    }

    /// Waits for the page of the last step.
    pub fn wait_for_load(&mut self) {
        while !self.loaded {
            self.message();
        }
    }

    pub fn evaluate(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        self.call("Runtime.evaluate", params)["result"]["value"].take()
    }

    /// Clicks and waits for the next page.
    pub fn click(&mut self, selector: &str) {
        self.loaded = false;
        let middle = format!(
            "(() => {{ const box = document.querySelector('{selector}').getBoundingClientRect();
             return [box.x + box.width / 2, box.y + box.height / 2]; }})()"
        );
        let middle = self.evaluate(&middle);
        for kind in ["mousePressed", "mouseReleased"] {
            let event =
                json!({"type": kind, "x": middle[0], "y": middle[1], "button": "left", "clickCount": 1});
            self.call("Input.dispatchMouseEvent", event);
        }
        self.wait_for_load();
    }

    /// Saves later downloads in a directory.
    pub fn keep_downloads(&mut self, dir: &std::path::Path) {
        let session = self.session.take();
        self.call("Browser.setDownloadBehavior", json!({"behavior": "allow", "downloadPath": dir}));
        self.session = session;
    }

    /// Types into the focused element.
    pub fn type_text(&mut self, text: &str) {
        self.loaded = false;
        self.call("Input.insertText", json!({"text": text}));
    }

    pub fn picture(&mut self, name: &str) {
        let picture = self.call("Page.captureScreenshot", json!({"format": "png"}));
        let bytes = BASE64_STANDARD.decode(picture["data"].as_str().unwrap()).unwrap();
        std::fs::write(format!("{}/{name}.png", env!("CARGO_TARGET_TMPDIR")), bytes).unwrap();
    }

    fn message(&mut self) -> Value {
        let mut message = Vec::new();
        self.messages.read_until(0, &mut message).unwrap();
        assert_eq!(message.pop(), Some(0), "the browser has ended");
        let message: Value = serde_json::from_slice(&message).unwrap();
        let params = &message["params"];
        match message["method"].as_str() {
            Some("Page.loadEventFired") => self.loaded = true,
            Some("Runtime.exceptionThrown" | "Log.entryAdded") => self.complaints.push(params.to_string()),
            Some("Runtime.consoleAPICalled") if params["type"] != "log" => {
                self.complaints.push(params.to_string())
            }
            _ => {}
        }
        message
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        self.session = None;
        let closed = write!(self.commands, "{}\0", json!({"id": 0, "method": "Browser.close"}));
        // The pipe closes when Chromium has ended.
        let ended = closed.and_then(|()| std::io::copy(&mut self.messages, &mut std::io::sink()));
        if ended.is_err() {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}
