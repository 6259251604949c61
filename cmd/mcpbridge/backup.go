package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strconv"

	"mcpbridge/store"
)

type backupCmd struct {
	File  string `arg:"" type:"path" help:"Where to write it, with mode 0600."`
	Force bool   `help:"Replace the file if there is one."`
	adminFlags
}

// Run takes a backup of a running server. The file is there when it is whole, sound and
// on disk.
func (c *backupCmd) Run(ctx context.Context, p *Program) error {
	if err := store.Vacant(c.File, c.Force); err != nil { // before the server makes one for nothing
		return hint(err, "--force")
	}
	answer, err := c.send(ctx, http.MethodGet, "/api/v1/backup", nil)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.ContentLength < 0 {
		return fmt.Errorf("%s does not answer like the provisioning API: it does not say how long the backup is", address(c.Server))
	}
	report, err := store.WriteBackup(ctx, c.File, answer.Body, answer.ContentLength, c.Force)
	if err != nil {
		return hint(err, "--force")
	}
	return printReport(p, c.Output, "wrote", &report)
}

type restoreCmd struct {
	File   string `arg:"" type:"existingfile" help:"A backup."`
	Data   string `default:"./data" type:"path" placeholder:"DIR" help:"Directory of the store, as the server has it. Default: ./data."`
	Force  bool   `help:"Restore over a store that is there; that one is kept beside it, under another name."`
	Output string `short:"o" enum:"table,json" default:"table" help:"table, or json."`
}

// Run puts a backup where a server finds it.
func (c *restoreCmd) Run(ctx context.Context, p *Program) error {
	report, aside, err := store.Restore(ctx, c.File, c.Data, c.Force)
	if err != nil {
		return hint(err, "--force")
	}
	if aside != "" {
		fmt.Fprintf(p.Stderr, "The store that was there is now %s\n", aside)
	}
	return printReport(p, c.Output, "restored", &report)
}

type checkCmd struct {
	File   string `arg:"" type:"existingfile" help:"A backup, or the mcpbridge.db of a server that does not run."`
	Output string `short:"o" enum:"table,json" default:"table" help:"table, or json."`
}

// Run reads a store's file, changes nothing, and says what is wrong with it.
func (c *checkCmd) Run(ctx context.Context, p *Program) error {
	report, err := store.CheckFile(ctx, c.File)
	if err != nil {
		return err
	}
	return errors.Join(printReport(p, c.Output, "sound", &report), report.Err())
}

// hint names the flag that goes on where there is a file already.
func hint(err error, flag string) error {
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%w, or give %s", err, flag)
	}
	return err
}

// printReport prints what was found in a file, after a word of what was done.
func printReport(p *Program, output, done string, r *store.Report) error {
	if output == "json" {
		text, err := encode(r)
		if err == nil {
			_, err = fmt.Fprintf(p.Stdout, "%s\n", text)
		}
		return err
	}
	rows := [][]string{{"BUCKET", "RECORDS", "BYTES"}}
	for _, b := range r.Buckets {
		name := harmless(b.Bucket)
		if b.Unknown {
			name += " (a newer program's)"
		}
		rows = append(rows, []string{name, strconv.Itoa(b.Records), strconv.FormatInt(b.Bytes, 10)})
	}
	if err := table(p.Stdout, rows); err != nil {
		return err
	}
	for _, fault := range r.Faults {
		fmt.Fprintf(p.Stdout, "fault: %s\n", harmless(fault))
	}
	if r.More > 0 {
		fmt.Fprintf(p.Stdout, "and %d more faults\n", r.More)
	}
	if r.Err() != nil {
		done = "damaged"
	}
	_, err := fmt.Fprintf(p.Stdout, "%s: %s, %d bytes, format %d\n", done, r.File, r.Bytes, r.Format)
	return err
}
