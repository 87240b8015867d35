package main

import (
	"errors"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/cli"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/watch"
)

func watchCommand() *cobra.Command {
	var o watch.Options
	var out cli.Output
	cmd := &cobra.Command{
		Use:   "watch [NAME]",
		Short: "Show who takes time from the lanes' CPUs, what to do about it, and what drifts from the plan",
		Long: "Counts what takes time from the CPUs of all lanes, or of one: tasks that are not the lane's,\n" +
			"kernel threads, interrupts, softirqs, IPIs, ticks and the hypervisor. It prints how often, how\n" +
			"long, the P99 and the longest, of the last second and since the start. A time is the source's\n" +
			"own: what interrupted the source has a row of its own. The interrupts of a lane's own device, and\n" +
			"what follows from them, are shown as the lane's own. watch ends with Ctrl-C or --for, and then\n" +
			"prints a summary. It reports drift from what apply has set within a second, and puts it back with\n" +
			"--repair; the exit code is 3 if drift is left in the end. Needs root. The threads of isolane keep\n" +
			"off these CPUs.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			o.Lane = strings.Join(args, "")
			if err = o.Validate(); err != nil {
				return cli.Usage(err)
			}
			if cmd.Flags().Changed("cpus") && o.CPUs.IsEmpty() {
				return cli.Usage(errors.New("--cpus: expected CPUs"))
			}
			if err = watch.Need("watch"); err != nil {
				return err
			}
			return runWatch(cmd, o, out.JSON())
		},
	}
	cmd.Flags().TextVar(&o.CPUs, "cpus", cpuset.Set{},
		"CPUs to watch, a `cpulist`; default: those of the lanes that are applied")
	cmd.Flags().StringSliceVar(&o.Groups, "cgroup", nil,
		"with --cpus: cgroup directories whose tasks belong there")
	cmd.Flags().DurationVar(&o.For, "for", 0, "end after this time, such as 30s; default: Ctrl-C")
	cmd.Flags().DurationVar(&o.Budget, "budget", 0,
		"longest single intrusion allowed, such as 50us; beyond it the exit code is 3")
	cmd.Flags().BoolVar(&o.Repair, "repair", false, "put back what others change, unless they keep changing it")
	out.Flags(cmd, "text", "json")
	return cmd
}

func runWatch(cmd *cobra.Command, o watch.Options, asJSON bool) (err error) {
	// The kernel's description of its types is large, and garbage as soon as the programs are loaded.
	limit := debug.SetMemoryLimit(18 << 20)
	w, err := watch.Open(options(), o)
	debug.SetMemoryLimit(limit)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	did := thisHost(cmd)
	defer did.Keep()
	recorded := func(show func(watch.Reading) error) func(watch.Reading) error {
		return func(r watch.Reading) error {
			did.Repaired(r.Drift)
			_ = did.Flush() // what cannot be written stays for the next time, and the end
			return show(r)
		}
	}
	if asJSON {
		return w.Run(cmd.Context(), recorded(watch.Documents(cmd.OutOrStdout())))
	}
	show := watch.NewDisplay(cmd.OutOrStdout(), o.Budget)
	defer show.Close() // also where reading fails
	return w.Run(cmd.Context(), recorded(show.Show))
}
