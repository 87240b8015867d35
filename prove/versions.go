package prove

import (
	"context"
	"os/exec"
	"strings"
)

// Versions are those of the programs that make figures; isolane is that of this one.
func Versions(ctx context.Context, isolane string) map[string]string {
	found := map[string]string{"isolane": isolane}
	for _, program := range []string{"stress-ng", "iperf3"} {
		out, err := exec.CommandContext(ctx, program, "--version").Output()
		if line, _, _ := strings.Cut(string(out), "\n"); err == nil {
			found[program] = strings.TrimSpace(line)
		}
	}
	return found
}
