-- Podwright's part of cli_filter: --gres=vipu:... is a word to job_submit, and no GRES of a node's.
-- Slurm itself refuses it for the step that srun makes of its own job, so it travels as a licence,
-- which steps do not have. Written by `podwright slurm configure`; your own script lies beside it
-- as cli_filter.site.lua and runs after this one.

local site = {}
do
   local chunk, problem = loadfile("@FOLDER@/cli_filter.site.lua")
   if chunk then
      chunk()
      site.defaults, site.pre, site.post =
         slurm_cli_setup_defaults, slurm_cli_pre_submit, slurm_cli_post_submit
   elseif not string.find(problem, "cannot open", 1, true) then
      slurm.log_error("podwright: %s", problem)
      error(problem)
   end
end

function slurm_cli_setup_defaults(options, early)
   if site.defaults then return site.defaults(options, early) end
   return slurm.SUCCESS
end

function slurm_cli_pre_submit(options, offset)
   local rest, marks = {}, {}
   for word in string.gmatch(options["gres"] or "", "[^,]+") do
      local said = string.match(word, "^gres[:/]vipu[:=]?(.*)$") or string.match(word, "^vipu[:=]?(.*)$")
      if said then
         marks[#marks + 1] = "podwright.gres." .. (string.gsub(said, ":", "."))
      else
         rest[#rest + 1] = word
      end
   end
   if #marks > 0 then
      options["gres"] = #rest > 0 and table.concat(rest, ",") or "none"
      local licences = options["licenses"]
      if licences and licences ~= "" then table.insert(marks, 1, licences) end
      options["licenses"] = table.concat(marks, ",")
   end
   if site.pre then return site.pre(options, offset) end
   return slurm.SUCCESS
end

function slurm_cli_post_submit(offset, job, step)
   if site.post then return site.post(offset, job, step) end
   return slurm.SUCCESS
end

return slurm.SUCCESS
