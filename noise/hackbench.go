package noise

import (
	"bufio"
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Hackbench is the program of rt-tests that makes groups of processes send messages to each other, as in
// MicroCloud's case study: here one group for each CPU, again and again.
const Hackbench = "hackbench"

// script runs hackbench again and again beside stress-ng, which may be missing, until SIGTERM: a shell cannot
// trap SIGINT that was ignored before, as in a background job. It adds how long each whole run took to the
// report, for hackbench itself counts nothing. A run has a group of its own to be ended with: told to end,
// hackbench now and then leaves children behind, and stress-ng goes on if it has just begun.
const script = `report=$1 options=$2 ended=
shift 2
trap 'ended=1' TERM
stress=
if [ $# -gt 0 ]; then "$@" & stress=$!; fi
code=0
while [ -z "$ended" ]; do
	setsid hackbench $options > "$report.run" & run=$!
	wait $run; code=$?
	if [ -n "$ended" ]; then break; fi
	if [ $code -ne 0 ]; then break; fi
	grep '^Time: ' "$report.run" >> "$report.times"
	if [ -n "$stress" ] && ! kill -0 $stress 2> /dev/null; then wait $stress; code=$?; stress=; break; fi
done
kill -s KILL -- -$run 2> /dev/null || kill -s KILL $run 2> /dev/null
tries=0
while [ -n "$stress" ] && kill -0 $stress 2> /dev/null; do
	if [ $((tries % 20)) -eq 0 ]; then kill $stress; fi
	tries=$((tries + 1))
	sleep 0.1
done
wait
if [ -e "$report.times" ]; then cat "$report.times" >> "$report"; fi
if [ -n "$ended" ]; then exit 0; fi
exit $code`

// withHackbench returns the command line of hackbench beside that of stress-ng.
func withHackbench(s Stressor, cpus int, report string, stress []string) []string {
	options := []string{"--groups=" + strconv.Itoa(cpus)}
	for option, value := range s.Options {
		if value != "" {
			option += "=" + value
		}
		options = append(options, "--"+option)
	}
	slices.Sort(options[1:])
	return append([]string{"sh", "-c", script, Hackbench, report, strings.Join(options, " ")}, stress...)
}

// runs reads and takes away the lines of hackbench at the end of a report: runs per second.
func runs(report []byte) (rest []byte, rate float64, err error) {
	var all, seconds float64
	lines := bufio.NewScanner(bytes.NewReader(report))
	for lines.Scan() {
		took, is := strings.CutPrefix(lines.Text(), "Time: ")
		if !is {
			rest = append(append(rest, lines.Bytes()...), '\n')
			continue
		}
		s, perr := strconv.ParseFloat(took, 64)
		if perr != nil || s < 0 {
			return nil, 0, fmt.Errorf("%s: %q: expected the seconds of a run", Hackbench, lines.Text())
		}
		all, seconds = all+1, seconds+s
	}
	if seconds > 0 {
		rate = all / seconds
	}
	return rest, rate, lines.Err()
}
