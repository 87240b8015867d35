// Package vpptest stands in for VPP where there is none: a test's own binary is its vppctl, its state a file.
package vpptest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const name = "vppctl"

// stateEnv names the file with the state. A VPP that does not run has none.
const stateEnv = "ISOLANE_TEST_VPP"

// VPP is what a VPP has: its interfaces by their names, and its bridge domains by their numbers.
type VPP struct {
	Version string
	Threads string // what it answers to show threads
	Faces   map[string]*Face
	Domains map[string]bool
}

// Face is an interface.
type Face struct {
	Up               bool
	Bridge, Pop, Tag string
}

// Be makes the process vppctl where it was started under that name. It is for hosttest.Main.
func Be() (ran bool, err error) {
	if filepath.Base(os.Args[0]) != name {
		return false, nil
	}
	v, err := Read()
	if err != nil {
		return true, errors.New("connect: Connection refused") // as vppctl says it
	}
	if _, err = fmt.Fprintln(os.Stdout, v.answer(strings.Join(os.Args[1:], " "))); err == nil {
		err = v.write()
	}
	return true, err
}

// Install makes vppctl one of a VPP that does not run so far, until the test ends.
func Install(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	self, err := os.Executable()
	if err == nil {
		err = os.Symlink(self, filepath.Join(dir, name))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(stateEnv, filepath.Join(dir, "state"))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// Read is the VPP that runs.
func Read() (v VPP, err error) {
	data, err := os.ReadFile(os.Getenv(stateEnv))
	if err == nil {
		err = json.Unmarshal(data, &v)
	}
	return v, err
}

// String is its state, as it is written.
func (v VPP) String() string {
	data, _ := json.Marshal(v) // plain data
	return string(data)
}

// Run begins this VPP, in place of another one.
func (v VPP) Run(t *testing.T) {
	t.Helper()
	if err := v.write(); err != nil {
		t.Fatal(err)
	}
}

// End ends the VPP that runs.
func End(t *testing.T) {
	t.Helper()
	if err := os.Remove(os.Getenv(stateEnv)); err != nil {
		t.Fatal(err)
	}
}

// write is done as a whole or not at all: who asks may be killed.
func (v VPP) write() error {
	file := os.Getenv(stateEnv)
	next := fmt.Sprint(file, ".", os.Getpid())
	err := os.WriteFile(next, []byte(v.String()), 0o600)
	if err == nil {
		err = os.Rename(next, file)
	}
	return err
}

// commands are what it is asked, as patterns, and what it does.
type commands map[string]func(of []string) (says string)

// answer is what VPP 26.10 prints, in the grammar of its sources (vnet/interface_cli.c, vnet/l2/l2_bd.c,
// l2_input.c and l2_vtr.c, plugins/af_packet/cli.c).
func (v VPP) answer(command string) string {
	for _, all := range []commands{v.shows(), v.domains(), v.interfaces()} {
		for pattern, do := range all {
			if m := regexp.MustCompile("^" + pattern + "$").FindStringSubmatch(command); m != nil {
				return do(m)
			}
		}
	}
	return "unknown input `" + command + "'"
}

func (v VPP) shows() commands {
	return commands{
		`show version`: func([]string) string { return "vpp v" + v.Version + " built by root on a at b" },
		`show threads`: func([]string) string { return v.Threads },
		`show interface address`: func([]string) (out string) {
			for _, name := range slices.Sorted(maps.Keys(v.Faces)) {
				f := v.Faces[name]
				out += fmt.Sprintf("%s (%s):\n", name, map[bool]string{true: "up", false: "dn"}[f.Up])
				if f.Bridge != "" {
					out += fmt.Sprintf("  L2 bridge bd-id %s idx 1 shg 0  \n", f.Bridge)
				}
			}
			return out
		},
		`show interface tag (\S+)`: func(m []string) string {
			return m[1] + ": " + cmp.Or(v.Faces[m[1]].Tag, "(none)")
		},
		`show interface vtr (\S+)`: func(m []string) string { return m[1] + ":  VTR " + v.Faces[m[1]].Pop },
		`show bridge-domain (\d+)`: func(m []string) string {
			if !v.Domains[m[1]] {
				return "show bridge-domain: No such bridge domain " + m[1]
			}
			return "  BD-ID   Index   BSN\n" + "    " + m[1] + "      1      0"
		},
	}
}

func (v VPP) domains() commands {
	return commands{
		`create bridge-domain (\d+) del`: func(m []string) string {
			for _, f := range v.Faces {
				if f.Bridge == m[1] {
					return "create bridge-domain: bridge domain in use - remove members"
				}
			}
			if !v.Domains[m[1]] {
				return "create bridge-domain: bridge domain ID does not exist"
			}
			delete(v.Domains, m[1])
			return ""
		},
		`set interface l2 bridge (\S+) (\d+)`: func(m []string) string {
			v.Faces[m[1]].Bridge, v.Domains[m[2]] = m[2], true
			return ""
		},
		`set interface l3 (\S+)`: func(m []string) string { v.Faces[m[1]].Bridge = ""; return "" },
	}
}

func (v VPP) interfaces() commands {
	return commands{
		`create sub-interfaces (\S+) (\d+) (?:default|(?:dot1ad \d+ inner-)?dot1q \d+ exact-match)`: func(
			m []string,
		) string {
			name := m[1] + "." + m[2]
			v.Faces[name] = &Face{Pop: "none"}
			return name
		},
		`create host-interface v2 name (\S+)`: func(m []string) string {
			v.Faces["host-"+m[1]] = &Face{Pop: "none"}
			return "host-" + m[1]
		},
		`delete (?:sub-interface (\S+)|host-interface name (\S+))`: func(m []string) string {
			delete(v.Faces, m[1])
			delete(v.Faces, "host-"+m[2])
			return ""
		},
		`set interface state (\S+) (up|down)`: func(m []string) string {
			v.Faces[m[1]].Up = m[2] == "up"
			return ""
		},
		`set interface tag (\S+) (\S+)`: func(m []string) string { v.Faces[m[1]].Tag = m[2]; return "" },
		`set interface l2 tag-rewrite (\S+) pop (1|2)`: func(m []string) string {
			v.Faces[m[1]].Pop = "pop-" + m[2]
			return ""
		},
	}
}
