package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"isolane.dev/isolane/lanes"
)

// systemd accepts the units of a hub and of a host's agent, and restarts them. They start an existing
// command: the agent's if the host has joined, the hub's with a folder that it may write.
func TestUnit(t *testing.T) {
	for name, wants := range map[string]string{"isolane-hub-agent": "ConditionPathExists=DIR/hub/joined.json\nRequiresMountsFor=DIR", "isolane-hub": "StateDirectory=isolane-hub"} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile("../../../packaging/" + name + ".service")
			if err != nil {
				t.Fatal(err)
			}
			const program = "ExecStart=/usr/bin/isolane-hub "
			_, rest, there := strings.Cut(string(text), program)
			line, _, _ := strings.Cut(rest, "\n")
			cmd, flags, err := command(lanes.Options{}).Find(strings.Fields(line))
			if err == nil {
				err = cmd.ParseFlags(flags)
			}
			if !there || err != nil || cmd.RunE == nil || len(cmd.Flags().Args()) > 0 {
				t.Fatalf("it starts %q, %v: expected a command of isolane-hub", line, err)
			}
			dir := cmd.Flag("dir").Value.String()
			for _, want := range []string{strings.ReplaceAll(wants, "DIR", dir), "StartLimitIntervalSec=0", "Restart=always"} {
				if !strings.Contains(string(text), "\n"+want+"\n") {
					t.Errorf("expected %s", want)
				}
			}
			if state, is := strings.CutPrefix(wants, "StateDirectory="); is && dir != filepath.Join("/var/lib", state) {
				t.Errorf("it may write /var/lib/%s, and not %s", state, dir)
			}
			verify, err := exec.LookPath("systemd-analyze")
			if err != nil {
				t.Skip("skipped: needs systemd-analyze")
			}
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			here := filepath.Join(t.TempDir(), name+".service")
			own := strings.ReplaceAll(string(text), program, "ExecStart="+self+" ")
			if err = os.WriteFile(here, []byte(own), 0o644); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command(verify, "verify", "--man=no", here).CombinedOutput(); err != nil || strings.Contains(string(out), "isolane") {
				t.Errorf("%s%v", out, err)
			}
		})
	}
}

// The build flags of the packages give the program the version that it prints.
func TestRelease(t *testing.T) {
	text, err := os.ReadFile("../../../packaging/build")
	if err != nil {
		t.Fatal(err)
	}
	flags := regexp.MustCompile(`-ldflags "([^"]*)\$VERSION"`).FindSubmatch(text)
	if flags == nil {
		t.Fatal("packaging/build: expected -ldflags with $VERSION")
	}
	program := filepath.Join(t.TempDir(), "isolane-hub")
	if out, berr := exec.Command("go", "build", "-ldflags", string(flags[1])+"9.8.7", "-o", program, ".").CombinedOutput(); berr != nil {
		t.Fatalf("%s%v", out, berr)
	}
	if said, rerr := exec.Command(program, "--version").CombinedOutput(); rerr != nil || !strings.HasPrefix(string(said), "isolane-hub 9.8.7, commit ") {
		t.Errorf("it says %s%v", said, rerr)
	}
}
