package up

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ending is the unplanned end of a program, with its last words.
type ending struct{ program, said string }

// maxEarlyEnds is how often a program may end before the hub has been ready. A complaint about its options
// that often is no accident.
const maxEarlyEnds = 3

// cause says which option caused an ending and what was expected of it; "": unknown.
func (o Options) cause(e ending) string {
	room := "--dir " + o.Dir + ": expected room on its disk"
	if e.said == "" && full(o.Dir) { // it could not even write why
		return room
	}
	for _, row := range []struct{ program, says, about string }{
		{"kube-apiserver", "audit policy", "--audit " + o.Audit + ": expected a policy that the API server takes"},
		{"kube-apiserver", "authentication configuration", "--authentication " + o.Authentication +
			": expected a file that the API server takes"},
		{"etcd", "no space left on device", room},
		{"etcd", "version", "--dir " + o.Dir + ": expected a store that no later version has written"},
		{"etcd", "database", "--dir " + o.Dir + ": expected a store, or a backup restored in its place"},
	} {
		if e.program == row.program && strings.Contains(e.said, row.says) {
			return row.about
		}
	}
	return ""
}

// full reports whether a file system has no room left.
func full(dir string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(dir, &fs) == nil && fs.Bavail == 0
}

// giveUp returns an error if a program has ended too often for the hub to go on waiting for it. If there are
// other hubs, a member of the store may have to wait for them, so then only a known cause counts.
func (o Options) giveUp(e ending, times int, others bool) error {
	about := o.cause(e)
	if times < maxEarlyEnds || about == "" && others {
		return nil
	}
	if about == "" {
		about = "expected " + e.program + " to run"
	}
	return fmt.Errorf("%s: %s has ended %d times: %s", about, e.program, times, e.said)
}

// lastWord returns what a program says about its end in its log, from an offset on: its last fatal line, else
// its last line.
func lastWord(log string, from int64) string {
	data, err := os.ReadFile(log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(string(bytes.TrimSpace(data[min(from, int64(len(data))):])), "\n")
	last := lines[len(lines)-1]
	for _, line := range lines {
		if word := fatal(line); word != "" {
			last = word
		}
	}
	return fmt.Sprintf("%.300s", last)
}

// fatal returns the message of a line with which etcd (zap) or kube-apiserver (klog) ends; "" for other
// lines.
func fatal(line string) string {
	var said struct{ Level, Msg, Error string }
	if json.Unmarshal([]byte(line), &said) == nil && (said.Level == "fatal" || said.Level == "panic") {
		return said.Msg + ": " + said.Error
	}
	if klog := regexp.MustCompile(`^F\d{4} [^\]]*\] (.*)$`).FindStringSubmatch(line); klog != nil {
		return klog[1]
	}
	_, quoted, _ := strings.Cut(line, `"command failed" err=`)
	text, err := strconv.Unquote(quoted)
	if err != nil {
		return quoted
	}
	return text
}
