-- Podwright reads job scripts at submission: what it finds, users are told. Written by
-- `podwright slurm configure --gpus --lint`; a script that the site had lies beside it as
-- job_submit.own.lua, and runs after this one. After a change of yours: touch this file.

local here = "@FOLDER@"
local refuses = @REFUSES@
local socket, library, patience = "@SOCKET@", "@LIBRARY@", "@MS@"

local own = {}
do
   local chunk, problem = loadfile(here .. "/job_submit.own.lua")
   if chunk then
      chunk()
      own.submit, own.modify = slurm_job_submit, slurm_job_modify
      slurm_job_submit, slurm_job_modify = nil, nil
   elseif not string.find(problem, "cannot open", 1, true) then
      slurm.log_error("podwright lint: %s", problem)
      error(problem)
   end
end

local ask, missing = package.loadlib(library, "podwright_ask")

-- Counts as submitted: where they differ from the script's, options or the environment changed them.
local COUNTS = { "min_nodes", "num_tasks", "ntasks_per_node", "cpus_per_task" }
local TEXTS = { "tres_per_job", "tres_per_node", "tres_per_task", "tres_per_socket", "partition" }

local function question(jd)
   local lines = {}
   for _, name in ipairs(COUNTS) do
      local value = jd[name]
      -- 16 and 32 bits of "not said".
      if type(value) == "number" and value ~= 65534 and value < 4294967290 then
         lines[#lines + 1] = string.format("%s=%.0f", name, value)
      end
   end
   for _, name in ipairs(TEXTS) do
      local value = jd[name]
      if type(value) == "string" and not string.find(value, "\n", 1, true) then
         lines[#lines + 1] = name .. "=" .. value
      end
   end
   return table.concat(lines, "\n") .. "\n\n" .. jd.script
end

-- The job passes wherever this does not come to an end: a fault of ours stops no work.
local function findings(jd)
   if type(jd.script) ~= "string" then return nil end
   if not ask then
      return nil, missing
   end
   local answer, reason = ask(socket, question(jd), patience)
   if not answer then return nil, reason end
   local level, text = string.match(answer, "^(%a+)\n(.*)$")
   if level == "clean" then return nil end
   if level ~= "mistake" or not text then return nil, "its answer is not understood" end
   return text
end

local function looked_at(jd)
   local fine, text, reason = pcall(findings, jd)
   if not fine then text, reason = nil, text end
   if reason then
      slurm.log_info("podwright lint: %s; the job passes unread", tostring(reason))
   end
   if not text then return true end
   for line in string.gmatch(text, "[^\n]+") do slurm.log_user("%s", line) end
   return not refuses
end

function slurm_job_submit(jd, parts, uid)
   if not looked_at(jd) then return slurm.ERROR end
   if own.submit then return own.submit(jd, parts, uid) end
   return slurm.SUCCESS
end

function slurm_job_modify(jd, job, parts, uid)
   if own.modify then return own.modify(jd, job, parts, uid) end
   return slurm.SUCCESS
end

return slurm.SUCCESS
