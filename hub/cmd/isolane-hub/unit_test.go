package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"isolane.dev/isolane/lanes"
)

// The unit of the agent is one that systemd takes; it starts a command that there is, where a host has joined.
func TestUnit(t *testing.T) {
	text, err := os.ReadFile("../../../packaging/isolane-hub-agent.service")
	if err != nil {
		t.Fatal(err)
	}
	const program = "ExecStart=/usr/bin/isolane-hub "
	_, rest, there := strings.Cut(string(text), program)
	line, _, _ := strings.Cut(rest, "\n")
	command, flags, _ := strings.Cut(line, " ")
	cmd := agentCommand(lanes.Options{})
	if err = cmd.ParseFlags(strings.Fields(flags)); !there || command != "agent" || err != nil {
		t.Fatalf("it starts %q, %v: expected isolane-hub agent", line, err)
	}
	if want := "\nConditionPathExists=" + filepath.Join(cmd.Flag("dir").Value.String(), "hub", "joined.json") + "\n"; !strings.Contains(string(text), want) {
		t.Errorf("expected%s", want)
	}
	verify, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("skipped: needs systemd-analyze")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	here := filepath.Join(t.TempDir(), "isolane-hub-agent.service")
	own := strings.ReplaceAll(string(text), program, "ExecStart="+self+" ")
	if err = os.WriteFile(here, []byte(own), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(verify, "verify", "--man=no", here).CombinedOutput(); err != nil || strings.Contains(string(out), "isolane") {
		t.Errorf("%s%v", out, err)
	}
}
